"""Conditions on the log: readers that skip files by their bounds find what is there."""

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from tailrace.pipeline import log_files
from tailrace.pipeline.maintenance import compact
from tailrace.pipeline.tables.iceberg import IcebergStore
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline
from tests.scratch import MakeDirectory

LONG = "\U0010ffff" * 3000
"""12,000 bytes, above which Parquet would have no bounds; and no text is greater."""

CONDITIONS = [
    "segment = 1",
    "operation = 'delete'",
    "key = '\"k1\"'",
    "key > '\"k1\"'",
    "collection <> 'orders'",
    "collection IS NULL",
    "full_document IS NULL",
    "full_document IS NOT NULL",
    f"full_document LIKE '%{LONG[:50]}%'",
    f'full_document >= \'{{"_id":"{LONG}\'',
    "full_document_before_change IS NULL",
    "extra = 'none'",
    "cluster_seconds > 1700000000",
    "wall_time IS NULL AND cluster_time IS NOT NULL",
    "scope = 'orders' AND ordinal < 2",
]


WRITERS: dict[str, dict[str, int]] = {
    "by this process": {},
    "in parts": {"CHUNK": 1, "PART_BYTES": 1},
    "by workers": {"ROWS": 0},
}


@pytest.fixture(scope="module", params=WRITERS.values(), ids=WRITERS)
def limits(request: pytest.FixtureRequest) -> dict[str, int]:
    """The limits of ``log_files`` by which files are written."""
    found: dict[str, int] = request.param
    return found


@pytest.fixture(scope="module")
def log(limits: dict[str, int], spark: SparkSession, session_directory: MakeDirectory) -> Pipeline:
    return written(Pipeline(spark, session_directory("bounds")), limits)


@pytest.fixture(scope="module")
def iceberg_log(
    limits: dict[str, int], spark: SparkSession, session_directory: MakeDirectory
) -> Pipeline:
    directory = session_directory("bounds")
    catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db"}
    return written(Pipeline(spark, directory, catalog=catalog), limits)


def written(pipeline: Pipeline, limits: dict[str, int]) -> Pipeline:
    """A log of two batches, of which the second has columns that are empty in the first."""
    s = Stream()
    pipeline.land([s.insert("k1", n=1), s.insert("k2", n=2)])
    pipeline.land([s.insert(LONG, n=LONG), s.update("k1", n=2), s.delete("k2"), s.drop("other")])
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in limits.items():
            patch.setattr(log_files, name, limit)
        pipeline.append()
    return pipeline


@pytest.mark.parametrize("compacted", [False, True], ids=["as written", "compacted"])
def test_every_reader_finds_the_rows_of_a_condition(compacted: bool, log: Pipeline) -> None:
    if compacted:
        assert compact(log.job().log.load(), many=2) > 0
    path = str(log.tables / "changes")
    delta = DeltaTable(path)
    everything, skipping = duckdb.connect(), duckdb.connect()
    everything.register("log", delta.to_pyarrow_table())
    skipping.register("log", delta.to_pyarrow_dataset())
    context = polars.SQLContext(log=polars.scan_delta(path))
    engine = QueryBuilder().register("log", delta)
    for condition in CONDITIONS:
        query = f"SELECT count(*) AS n FROM log WHERE {condition}"
        (expected,) = everything.sql(query).fetchall()
        assert skipping.sql(query).fetchall() == [expected], condition
        assert context.execute(query).collect().rows() == [expected], condition
        assert pa.table(engine.execute(query).read_all())["n"].to_pylist() == [*expected], condition


@pytest.mark.parametrize("compacted", [False, True], ids=["as written", "compacted"])
def test_every_reader_of_iceberg_finds_the_rows_of_a_condition(
    compacted: bool, iceberg_log: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    if compacted:
        assert compact(iceberg_log.job().log.load(), many=2) > 0
    store = iceberg_log.store
    assert isinstance(store, IcebergStore)
    stored = store.stored("changes")
    assert stored is not None
    everything = duckdb.connect()
    everything.register("log", stored.scan().to_arrow())
    context = polars.SQLContext(log=polars.scan_iceberg(stored))
    for condition in CONDITIONS:
        query = f"SELECT count(*) AS n FROM log WHERE {condition}"
        (expected,) = everything.sql(query).fetchall()
        assert context.execute(query).collect().rows() == [expected], condition
        if "LIKE" not in condition:  # which pyiceberg has only for beginnings
            assert (stored.scan(condition).count(),) == expected, condition
