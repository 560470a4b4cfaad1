"""Documents: every type of BSON, and names that no directory may have."""

from collections.abc import Iterator
from typing import Any

import bson
import duckdb
import pyarrow as pa
import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex
from bson.timestamp import Timestamp
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tailrace.event.extended_json import to_json
from tailrace.lake.segment import Documents
from tailrace.pipeline import log_files, spark_files
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.decoding import key_of
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE
from tailrace.pipeline.quality import quality_table
from tailrace.pipeline.schemas import table_name
from tailrace.pipeline.tables import Table
from tailrace.pipeline.tables.iceberg import IcebergStore
from tests.pipeline.columns import COLUMNS, VALUES, document_of
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline
from tests.scratch import MakeDirectory

_HEAD = b"\x0esymbol\0\x04\0\0\0abc\0\x06undefined\0\x0cpointer\0\x02\0\0\0a\0" + bytes(12)
"""Types that PyMongo no longer writes."""

EVERYTHING: dict[str, Any] = {
    "_id": 1,
    "double": 1.5,
    "whole double": 3.0,
    "minus zero": -0.0,
    "nan": float("nan"),
    "infinite": float("-inf"),
    "string": 'ä\u2028\0"\\ {"$numberInt":"5"}',
    "document": {"a.b": {"$c": 1, "": []}},
    "array": [1, [2, {}], None],
    "binary": Binary(b"\0\xff", 0x80),
    "uuid": Binary(bytes(16), 4),
    "object id": ObjectId("5f5e0f0f0f0f0f0f0f0f0f0f"),
    "bool": True,
    "date": DatetimeMS(1),
    "old date": DatetimeMS(-(2**62)),
    "far date": DatetimeMS(2**62),
    "null": None,
    "regex": Regex('a/b"', "imx"),
    "code": Code("f()"),
    "code with scope": Code("f()", {"x": Int64(1)}),
    "int32": -(2**31),
    "int64": Int64(5),
    "big": Int64(2**63 - 1),
    "timestamp": Timestamp(2**32 - 1, 2**32 - 1),
    "decimal": Decimal128("1.50E+6000"),
    "decimal nan": Decimal128("NaN"),
    "min": MinKey(),
    "max": MaxKey(),
}

KEYS: list[Any] = [
    {"a": 1, "b": "x"}, Int64(2**40), 1.5, Decimal128("2.5"), True, None, Binary(b"x", 0), "1",
    ObjectId("5f5e0f0f0f0f0f0f0f0f0f0f"), DatetimeMS(-5), float("nan"), 'a":"b',
]  # fmt: skip

NAME = "Größe/a.b c%"


def raw(document: dict[str, Any]) -> bytes:
    body = bson.encode(document)[4:-1] + _HEAD + b"\0"
    return (len(body) + 4).to_bytes(4, "little") + body


@pytest.fixture(
    scope="module",
    params=[("delta", log_files.ROWS), ("delta", 0), ("iceberg", 0)],
    ids=["here", "in Spark", "iceberg"],
)
def pipeline(
    request: pytest.FixtureRequest, spark: SparkSession, session_directory: MakeDirectory
) -> Iterator[Pipeline]:
    """Tables of documents that this process has decoded, or Spark's workers."""
    (form, rows_here), directory = request.param, session_directory("documents")
    catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db"}
    pipeline = Pipeline(spark, directory, catalog=catalog if form == "iceberg" else None)
    s = Stream()
    everything = s.insert(1, "types")
    everything["fullDocument"] = raw(EVERYTHING)
    pipeline.land([everything], documents=Documents.BSON)
    events = [s.insert(key, "keys", n=1) for key in KEYS]
    events += [s.insert("k", NAME, n=1)]
    for at, value in enumerate(VALUES):
        events.append(s.insert(at, "values", **document_of([value] * len(COLUMNS))))
    pipeline.land(events, documents=Documents.CANONICAL)
    updated = s.update(1, "types", int64=Int64(6), document__new=Decimal128("0.10"))
    pipeline.land([updated, *(s.delete(key, "keys") for key in KEYS[:3])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "ROWS", rows_here)
        patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
        pipeline.run(columns={"shop.values": COLUMNS})
        yield pipeline


def test_every_type_survives_the_log_and_an_update(pipeline: Pipeline) -> None:
    before, after = sorted(
        pipeline.table("history/shop.types"), key=lambda row: row["valid_from_position"]
    )
    assert before["document"] == to_json(raw(EVERYTHING), canonical=True)
    document = {**EVERYTHING["document"], "new": Decimal128("0.10")}
    changed = {**EVERYTHING, "int64": Int64(6), "document": document}
    assert after["document"] == to_json(raw(changed), canonical=True)
    (log,) = [row for row in pipeline.table("changes") if row["ordinal"] == 0]
    assert log["full_document"] == before["document"]
    assert log["token"] == '{"_data":"00000001"}'


def test_a_key_may_be_of_any_type(pipeline: Pipeline) -> None:
    keys = {row["document_key"] for row in pipeline.table("current/shop.keys")}
    assert keys == {to_json(bson.encode({"_id": key}), canonical=True) for key in KEYS[3:]}


@pytest.mark.parametrize("number", [0, -7, 2**31 - 1, 10**17, 2**63 - 1, -(2**63)])
def test_equal_numbers_are_one_key(number: int) -> None:
    same = [Int64(number), Decimal128(str(number))]
    same += [number] if abs(number) < 2**31 else []
    texts = [to_json(bson.encode({"_id": each}), canonical=True) for each in same]
    assert {key_of(text) for text in texts} == {f'{{"$numberLong":"{number}"}}'}


@pytest.mark.parametrize("text", ["05", "-0", "99999999999999999999", "x"])
def test_a_document_that_looks_like_a_number_is_a_key_of_its_own(text: str) -> None:
    """An application may store it; only the text of a number that BSON holds is one."""
    key = key_of(f'{{"_id":{{"$numberLong":"{text}"}}}}')
    assert key == f'{{"$numberLong":"{text}"}}'


def test_a_collection_may_have_a_name_that_no_directory_may_have(pipeline: Pipeline) -> None:
    assert pipeline.current(table_name("shop", NAME)) == {"k": {"n": 1}}
    (row,) = [row for row in pipeline.table("changes") if row["collection"] == NAME]
    assert row["database"] == "shop"


@pytest.mark.parametrize("name", ["changes", "quality", "current", "history"])
def test_every_reader_has_the_same_rows(pipeline: Pipeline, name: str) -> None:
    """The format's own library, polars, DuckDB and Spark, of every table."""
    for table in tables_of(pipeline, name):
        found = {
            "polars": pipeline.frame(table.name).to_arrow(),
            "Spark": spark_files.read_table(pipeline.spark, table, table.load().files).toArrow(),
            **by_own_library(pipeline, table.name),
        }
        of_spark = as_text(found["Spark"])
        assert len(of_spark) > 0 or name == "current"
        for reader, rows in found.items():
            assert as_text(rows) == of_spark, (reader, table.name)


def tables_of(pipeline: Pipeline, name: str) -> list[Table]:
    store, lake = pipeline.store, pipeline.landing.identity
    if name == "quality":
        return [quality_table(store, lake)]
    if name == "changes":
        return [changes_table(store, lake)]
    kind = {"current": CURRENT_STATE, "history": HISTORY_STATE}[name]
    return [kind.table(store, lake, each).load().table for each in store.names(name)]


def by_own_library(pipeline: Pipeline, name: str) -> dict[str, pa.Table]:
    """As read by the library of the format, and by DuckDB through it."""
    store, session = pipeline.store, duckdb.connect()
    if isinstance(store, IcebergStore):
        stored = store.stored(name)
        assert stored is not None
        rows = stored.scan().to_arrow()
        session = stored.scan().to_duckdb("found")
    else:
        delta = DeltaTable(f"{pipeline.tables}/{name}")
        rows = delta.to_pyarrow_table()
        session.register("found", delta.to_pyarrow_dataset())
    session.execute("SET TimeZone = 'UTC'")
    return {"library": rows, "DuckDB": session.sql("SELECT * FROM found").to_arrow_table()}


def as_text(rows: pa.Table) -> list[str]:
    """Rows of readers that name types, and one time zone, differently."""
    columns = {}
    for name in sorted(rows.column_names):
        column = rows[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        columns[name] = column
    return sorted(map(str, pa.table(columns).to_pylist()))
