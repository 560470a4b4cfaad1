"""What the pipeline needs of a table format, for each format."""

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import parquet
from pyiceberg.catalog.glue import GlueCatalog

from tailrace.errors import PipelineRefused, TablesFenced
from tailrace.pipeline.location import Location
from tailrace.pipeline.table_schema import StoredType, TableField, TableSchema
from tailrace.pipeline.tables import DeltaStore, Table, TableStore
from tailrace.pipeline.tables.iceberg import IcebergStore
from tests.contract.rest_catalog import rest_catalog
from tests.contract.tables import SCHEMA, iceberg, keys, written
from tests.s3 import CREDENTIALS

TYPED = TableField("customer.name", StoredType.STRING, {"tailrace.path": "customer.name"})
TOTAL = TableField("total", StoredType.DECIMAL, {"tailrace.path": "total"})


def delta(directory: Path) -> TableStore:
    return DeltaStore(Location.of(str(directory / "tables")))


@pytest.fixture(scope="module")
def over_rest(
    java: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Path], TableStore]]:
    with rest_catalog(tmp_path_factory.mktemp("warehouse")) as uri:
        yield lambda directory: IcebergStore(
            Location.of(str(directory / "tables")), {"type": "rest", "uri": uri}, directory.name
        )


@pytest.fixture
def in_glue(glue: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], TableStore]]:
    opened: list[IcebergStore] = []

    def in_directory(directory: Path) -> TableStore:
        settings = {"type": "glue", "glue.endpoint": glue, "glue.region": "us-east-1"}
        where = Location.of(str(directory / "tables"))
        opened.append(IcebergStore(where, settings, re.sub(r"\W", "_", directory.name)))
        return opened[0]

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    yield in_directory
    for store in opened:
        assert isinstance(store.catalog, GlueCatalog)
        store.catalog.glue.close()


@pytest.fixture(scope="module")
def glue() -> Iterator[str]:
    """The address of moto's server, which answers as AWS Glue does."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=[delta, iceberg, "over_rest", "in_glue"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TableStore:
    named = isinstance(request.param, str)
    opened: Callable[[Path], TableStore]
    opened = request.getfixturevalue(request.param) if named else request.param
    return opened(tmp_path)


@pytest.fixture
def table(store: TableStore) -> Table:
    by = ("scope", "done")
    return Table(store, "current/shop.orders", SCHEMA, "lake-1", by, bounded=True, description="x")


def test_a_table_without_a_commit(table: Table) -> None:
    version = table.load()
    assert (version.exists, version.version, version.segment("a"), version.application("x")) == (
        *(False, -1, -1, -1),
    )
    assert (list(version.files), version.property("x"), version.rows("key")) == ([], {}, [])
    assert version.row_with("key", "one", seconds=1).row is None
    assert (table.store.lake(table.name), list(table.store.names("current"))) == (None, [])


def test_the_first_commit_makes_the_table(table: Table) -> None:
    adds = written(table, "one", "two", number=7)
    table.load().commit(adds, segments={"a": 3}, applications={"x": 5}, metrics={"events": 2})
    version = table.load()
    assert version.exists
    assert version.version == 0
    assert (version.segment("a"), version.segment("b"), version.application("x")) == (3, -1, 5)
    assert version.table.schema == SCHEMA
    assert [counted for _, counted in version.recent_metrics(9)] == [{"events": 2}]
    (file,) = version.files
    assert (file.path, file.size, file.rows) == (adds[0].path, adds[0].size, 2)
    assert file.partition == {"scope": "a b", "done": "true"}
    assert (file.low["key"], file.high["number"]) == ("one", 7)
    assert keys(version) == ["one", "two"]
    assert (table.store.lake(table.name), list(table.store.names("current"))) == (
        *("lake-1", ["shop.orders"]),
    )


def test_a_commit_adds_and_removes_files_at_once(table: Table) -> None:
    first = written(table, "one") + written(table, "two", done=False)
    version = table.load().commit(first, segments={"a": 1, "b": 1}, applications={"x": 1})
    version = version.commit(written(table, "three"), first[:1], segments={"a": 2})
    for each in (version, table.load()):
        assert keys(each) == ["three", "two"]
        assert (each.segment("a"), each.segment("b"), each.application("x")) == (2, 1, 1)
        assert each.version == 1
    earlier = table.load(0)
    assert (earlier.segment("a"), keys(earlier)) == (1, ["one", "two"])


def test_a_commit_without_files_counts_as_one(table: Table) -> None:
    version = table.load().commit().commit(segments={"a": 1}, metrics={"n": 1})
    version = version.commit(metrics={"n": 2})
    assert version.segment("a") == 1
    assert list(version.metrics_since(0)) == [{"n": 1}, {"n": 2}]


def test_properties(table: Table) -> None:
    version = table.load().commit(written(table, "one"), segments={"a": 1})
    version = version.set_properties({"tailrace.x": {"a": {"b": "ü"}}, "tailrace.y": {}})
    version = version.set_properties({"tailrace.y": {"at": datetime(2026, 1, 1, tzinfo=UTC)}})
    for each in (version, table.load()):
        assert each.property("tailrace.x") == {"a": {"b": "ü"}}
        assert each.property("tailrace.y") == {"at": "2026-01-01T00:00:00.000000Z"}
        assert (each.segment("a"), keys(each)) == (1, ["one"])


def test_of_two_writers_the_second_is_refused(table: Table) -> None:
    table.load().commit(written(table, "one"), segments={"a": 1})
    one, other = table.load(), table.load()
    one.commit(written(table, "two"), segments={"a": 2})
    with pytest.raises(TablesFenced, match="another pipeline writes this table"):
        other.commit(written(table, "two"), one.files, segments={"a": 2})
    assert keys(table.load()) == ["one", "two"]


def test_of_two_writers_of_a_new_table_the_second_is_refused(table: Table) -> None:
    one, other = table.load(), table.load()
    one.commit(written(table, "one"), segments={"a": 1})
    with pytest.raises(TablesFenced):
        other.commit(written(table, "one"), segments={"a": 1})
    assert keys(table.load()) == ["one"]


def test_a_compaction_does_not_disturb_a_writer(table: Table) -> None:
    version = table.load()
    for number, key in enumerate(["one", "two", "three"]):
        version = version.commit(written(table, key), segments={"a": number}, metrics={"n": number})
    before, other = table.load(), table.load()
    removed = other.files[:1]
    assert table.load().compact(2**20) == 3
    after = before.commit(written(table, "four"), segments={"a": 3})
    assert keys(after) == ["four", "one", "three", "two"]
    assert (len(after.files), after.segment("a")) == (2, 3)
    with pytest.raises(TablesFenced):
        other.commit(written(table, "five"), removed, segments={"a": 3})


def test_a_compaction_changes_no_rows(table: Table) -> None:
    version = table.load()
    for number, key in enumerate(["one", "two", "three"]):
        version = version.commit(written(table, key, number=number), segments={"a": number})
    version.add_columns([TYPED])
    wider = table.load()
    version = wider.commit(
        written(wider.table, "four", **{TYPED.name: "Ada"}) + written(wider.table, "x", done=False)
    )
    before = sorted(map(str, version.rows(*wider.table.schema.names)))
    assert version.compact(2**20) == 4
    after = table.load()
    assert sorted(map(str, after.rows(*wider.table.schema.names))) == before
    assert after.segment("a") == 2
    one, other = sorted(after.files, key=lambda file: file.rows)
    assert (one.rows, one.partition["done"]) == (1, "false")
    assert (other.low["number"], other.high["number"]) == (0, 2)
    assert after.compact(2**20) == 0


def test_a_compacted_file_is_not_cut_into_small_row_groups(table: Table) -> None:
    """Which readers open one by one: each has a page of its own for each column."""
    version = table.load()
    for of in "ab":
        version = version.commit(written(table, *(f"{of}{n}" for n in range(1500))))
    assert version.compact(2**20) == 2
    (file,) = table.load().files
    location = table.location / file.path
    with location.files.open_input_file(location.path) as source:
        assert parquet.read_metadata(source).num_row_groups == 1
    assert len(keys(table.load())) == 3000


def test_a_damaged_file_is_not_compacted(table: Table) -> None:
    for key in ("one", "two"):
        table.load().commit(written(table, key * 1000))
    file = table.load().files[0]
    location = table.location / file.path
    with location.files.open_input_file(location.path) as source:
        content = bytearray(source.read())
    content[30] ^= 1
    with location.files.open_output_stream(location.path) as stream:
        stream.write(bytes(content))
    with pytest.raises(PipelineRefused, match="compaction failed"):
        table.load().compact(2**20)
    assert len(table.load().files) == 2


def test_columns_are_added_with_what_they_hold(table: Table) -> None:
    version = table.load().commit(written(table, "one"), segments={"a": 1})
    version = version.add_columns([TYPED, TOTAL])
    for each in (version, table.load()):
        assert each.table.schema == TableSchema.of([*SCHEMA, TYPED, TOTAL])
        assert each.rows("key", TYPED.name) == [{"key": "one", TYPED.name: None}]
    version.commit(written(version.table, "two", **{TYPED.name: "Ada"}), segments={"a": 2})
    assert {row[TYPED.name] for row in table.load().rows(TYPED.name)} == {None, "Ada"}


def test_a_commit_with_a_schema_replaces_everything(table: Table) -> None:
    other = TableField(TYPED.name, StoredType.LONG, {"tailrace.path": "other"})
    first = replace(table, schema=TableSchema.of([*SCHEMA, TYPED]))
    version = first.load().commit(written(first, "one", **{TYPED.name: "Ada"}), segments={"a": 1})
    schema = TableSchema.of([*SCHEMA, other, TOTAL])
    adds = written(replace(table, schema=schema), "two", **{TYPED.name: 5})
    version.commit(adds, segments={"a": 2}, schema=schema)
    version = table.load()
    assert {field.name: field for field in version.table.schema} == {
        field.name: field for field in schema
    }
    assert version.rows("key", TYPED.name) == [{"key": "two", TYPED.name: 5}]
    assert version.segment("a") == 2


def test_a_row_is_looked_up_in_one_file_at_least(table: Table) -> None:
    version = table.load()
    for key in ("one", "two", "three"):
        version = version.commit(written(table, key))
    found = version.row_with("key", "two", "number", seconds=9)
    assert found.row == {"number": 1}
    nothing = version.row_with("key", "four", "number", seconds=0)
    assert (nothing.row, nothing.searched, nothing.files) == (None, 1, 3)


def test_vacuum_removes_what_no_version_needs(table: Table) -> None:
    version = table.load().commit(written(table, "one"), segments={"a": 1})
    version = version.commit(written(table, "two"), version.files, segments={"a": 2})
    uncommitted = written(table, "three")
    assert version.vacuum(1) == 0
    assert version.vacuum(0) >= 2
    below = {path for path, _ in table.location.below() if path.endswith(".parquet")}
    assert below == {file.path for file in table.load().files}
    assert uncommitted[0].path not in below
    assert keys(table.load()) == ["two"]
    assert table.load().segment("a") == 2


def test_a_long_log_is_limited(table: Table) -> None:
    version = table.load()
    for number in range(4):
        version = version.commit(written(table, str(number)), segments={"a": number})
    assert not version.limit_log(100, 0)
    assert table.load().limit_log(2, 0)
    assert keys(table.load()) == ["0", "1", "2", "3"]
    assert table.load().segment("a") == 3


def test_a_table_of_another_lake_is_refused(table: Table) -> None:
    table.load().commit(written(table, "one"))
    with pytest.raises(PipelineRefused, match="belongs to the lake lake-1, not to lake-2"):
        replace(table, lake="lake-2").load()
