"""Columns that appear with the fields of documents."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest
from bson import Binary, DatetimeMS, Decimal128, Int64, ObjectId
from pyspark.sql import SparkSession

from tailrace.cli import main
from tailrace.config.pipeline import columns_of
from tailrace.pipeline import publish
from tailrace.pipeline.auto_columns import extended
from tailrace.pipeline.log_snapshot import CURRENT_STATE
from tailrace.pipeline.tables import Table, TableVersion
from tailrace.pipeline.tables.delta import DeltaVersion
from tailrace.pipeline.tables.iceberg.version import IcebergVersion
from tailrace.pipeline.typed_columns import AUTO_COLUMNS, stored_columns
from tests.pipeline.columns import VALUES, same
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline


def fields(**counts: int | tuple[str, int]) -> dict[str, Counter[str]]:
    """Fields of which so many values are strings, or fit another type."""
    found = {}
    for name, count in counts.items():
        kind, number = count if isinstance(count, tuple) else ("string", count)
        found[name] = Counter({"": number, **({kind: number} if kind else {})})
    return found


NOTHING: dict[str, Any] = {"columns": {}, "rescued": [], "left_out": []}


@pytest.mark.parametrize(
    ("before", "new", "after"),
    [
        ({}, fields(b=1, a=("long", 1)), {"columns": {"a": "long", "b": "string"}}),
        ({}, {"n": Counter({"": 3, "long": 2, "double": 3})}, {"columns": {"n": "double"}}),
        ({}, {"n": Counter({"": 2, "double": 2, "long": 2})}, {"columns": {"n": "long"}}),
        ({"columns": {"a": "long"}}, fields(a=9), {"columns": {"a": "long"}}),
        ({}, fields(Key=1, _rescued=1), {"rescued": ["Key", "_rescued"]}),
        ({}, {**fields(a=2), **fields(**{"A": 1, "a b": 1})},
         {"columns": {"a": "string"}, "rescued": ["A"], "left_out": ["a b"]}),
        ({}, fields(a=("", 1), **{"d.d": 1, "": 1, "q'": 1}),
         {"left_out": ["", "a", "d.d", "q'"]}),
        ({"left_out": ["a"]}, fields(a=1), {"columns": {"a": "string"}}),
        ({}, fields(a=1, b=2, c=3, d=4), {"columns": {"c": "string", "d": "string"},
                                          "left_out": ["a", "b"]}),
        ({"columns": {"a": "long"}, "rescued": ["key"]}, fields(b=1),
         {"columns": {"a": "long"}, "rescued": ["key"], "left_out": ["b"]}),
    ],
)  # fmt: skip
def test_fields_become_columns_up_to_columns_limit(
    before: dict[str, Any], new: dict[str, Counter[str]], after: dict[str, Any]
) -> None:
    """Two at most, the most frequent ones first; never with the name of another column."""
    assert extended(before, new, {}, 2) == NOTHING | after


def test_declared_columns_win() -> None:
    declared = columns_of({"n": "double", "other": {"path": "m", "type": "long"}})
    found = extended({}, fields(n=1, m=1, other=1, rest=1), declared, 9)
    assert found == NOTHING | {"columns": {"rest": "string"}, "rescued": ["other"]}


def current_table(pipeline: Pipeline) -> Table:
    job = pipeline.job()
    return CURRENT_STATE.table(job.tables, job.lake.identity, "shop.orders")


def rows(pipeline: Pipeline, kind: str) -> list[dict[str, Any]]:
    frame = polars.read_delta(str(pipeline.tables / kind / "shop.orders"))
    return frame.sort("key", "valid_from_position").to_dicts()


def test_columns_that_appear_are_those_that_could_have_been_declared(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over several processes, with documents that change their form, and all types of values.

    What has the name of one of our columns is rescued under its name, and counted.
    """
    s = Stream()
    first = {"n": 1, "t": "x", "at": DatetimeMS(5), "oid": ObjectId("5" * 24), "list": [1]}
    batches = [
        [s.insert(0, **first, price=Decimal128("1.5")), s.insert(1, n=Int64(2), blob=Binary(b"x"))],
        [s.insert(2, **{**first, "n": "no", "late": {"a": 1}, "Late": True, "a b": 5})],
        [s.insert(3, scope="mine", document=[1], Key=ObjectId("6" * 24), json=Binary(b"y"))],
        [
            s.update(0, n=2.5, added=True, deep__er=1),
            s.delete(1),
            s.update(2, removed=["t"]),
        ],
        [s.insert(10 + at, n=value, any=value) for at, value in enumerate(VALUES[1:])],
    ]
    auto, declared = (Pipeline(spark, tmp_path / name) for name in ("auto", "declared"))
    for batch in batches:
        auto.land(batch)
        auto.run(columns="auto" if batch is batches[0] else None)
        declared.land(batch)
    found = stored_columns(current_table(auto).load().table.schema)
    assert {name: column.type for name, column in found.items() if name != "any"} == {
        "_id": "long",
        "n": "long",
        "t": "string",
        "at": "timestamp",
        "oid": "objectId",
        "list": "json",
        "price": "decimal",
        "Late": "boolean",
        "added": "boolean",
        "deep": "json",
    }
    columns = {name: column.type for name, column in found.items()}
    declared.run(columns={"shop.orders": columns})
    by_name = {"scope": 1, "Key": 1, "json": 1, "$.document": 1, "late": 2, "a b": 2}
    for kind in ("current", "history"):
        for one, other in zip(rows(auto, kind), rows(declared, kind), strict=True):
            rescued, expected = (json.loads(each.pop("_rescued") or "{}") for each in (one, other))
            assert {name: rescued[name] for name in rescued if name not in by_name} == expected
            assert all(same(one[name], other[name]) for name in other)
    capsys.readouterr()
    assert main(["tables", "status", "--tables", str(auto.tables), "--json"]) == 0
    (status,) = json.loads(capsys.readouterr().out)["tables"]
    counts = status["rescued_by_field"]
    assert {name: counts[name] for name in by_name} == by_name
    assert (status["rescued"], status["fields_left_out"]) == (sum(counts.values()), ["blob"])
    assert main(["tables", "status", "--tables", str(auto.tables)]) == 0
    assert "shop.orders: in document only: blob" in capsys.readouterr().out


@pytest.mark.parametrize("small", [publish.SMALL_TABLE, 0], ids=["whole", "by file"])
def test_fields_may_have_the_names_that_spark_and_a_publication_use(
    small: int, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["_metadata", "__metadata", "line", "stage", "at", "live", "own", "typed_0", "tree_0"]
    names += ["json_0", "misfit_0", "parsed", "canonical", "table", "file", "segment", "N"]
    s, values = Stream(), {name: f"of {name}" for name in names}
    pipeline.land([s.insert(1, **values), s.insert(2, **values)])
    pipeline.run(columns="auto")
    monkeypatch.setattr(publish, "SMALL_TABLE", small)
    values["_metadata"] = "new"
    pipeline.land([s.insert(1, **values) | {"operationType": "replace"}, s.insert(3)])
    pipeline.run()
    first, second, third = rows(pipeline, "current")
    assert {name: first[name] for name in names} == values
    assert {name: second[name] for name in names} == values | {"_metadata": "of _metadata"}
    assert not {third[name] for name in names} - {None}


def test_a_rebuild_finds_the_columns_anew(pipeline: Pipeline) -> None:
    """Until then a column that was declared stays. A renamed collection takes its columns along."""
    s = Stream()
    pipeline.land([s.insert("k", n=1)])
    pipeline.run(columns={"shop.orders": {"n": "double"}})
    assert pipeline.table("current/shop.orders")[0]["n"] == 1.0
    pipeline.job(columns={"shop.orders": "auto"}).finish()
    pipeline.land([s.insert(f"k{at}", n="x") for at in range(3)] + [s.insert("k", "other", n=1)])
    pipeline.run()
    assert {row["n"] for row in rows(pipeline, "current")} == {1.0, None}
    assert len({row["_id"] for row in rows(pipeline, "current")}) == 4
    assert "n" not in pipeline.table("current/shop.other")[0]
    pipeline.job(columns="auto").rebuild()
    assert [row["n"] for row in rows(pipeline, "current")] == [None, "x", "x", "x"]
    pipeline.land([s.rename("orders", "moved")])
    pipeline.run()
    assert sorted(row["_id"] for row in pipeline.table("history/shop.moved")) == [
        *("k", "k0", "k1", "k2")
    ]
    assert {row["n"] for row in pipeline.table("current/shop.moved")} == {None, "x"}


RECORD, ADDITION, COMMIT = "set_properties", "add_columns", "commit"
ENDS = [
    (RECORD, "changes"),  # before there is a table
    (COMMIT, "changes"),  # before anything is recorded
    (RECORD, "changes"),
    (ADDITION, "current/shop.orders"),
    (ADDITION, "history/shop.other"),
    (COMMIT, "current/shop.orders"),
]
"""After which change of which table each run ends."""


class Crash(BaseException):
    """An error that nothing in the job may catch."""


def _end_after(monkeypatch: pytest.MonkeyPatch, name: str, table: str) -> None:
    for format in (DeltaVersion, IcebergVersion):
        monkeypatch.setattr(format, name, _ended(getattr(format, name), name, table))


def _ended(change: Callable[..., Any], name: str, table: str) -> Callable[..., Any]:
    def ended(version: TableVersion, *arguments: Any, **keywords: Any) -> Any:
        done = change(version, *arguments, **keywords)
        is_record = name != RECORD or AUTO_COLUMNS in arguments[0]
        if version.table.name == table and done is not version and is_record:
            raise Crash
        return done

    return ended


def contents(pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables; of their columns the order does not matter."""
    found = {}
    for name in (f"{kind}/shop.{each}" for kind in ("current", "history") for each in COLLECTIONS):
        found[name] = pipeline.table(name)
        found[name].sort(key=lambda row: (row["key"], row["valid_from_position"]))
        for row in found[name]:
            row["_rescued"] = json.loads(row["_rescued"] or "{}")
    return found


COLLECTIONS = ("orders", "other")


def test_runs_that_end_while_columns_appear_make_the_tables_of_a_rebuild(
    in_format: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column is recorded in the log, then added to the tables, then filled.

    Each batch has a field of its own, to which the next batch gives a value of another type: the
    record stands, also of a column that no table has yet.
    """
    pipeline, s = in_format, Stream()

    def land(at: int) -> None:
        new, odd = {f"f{at}": at}, {f"f{at - 1}": "x"} if at else {}
        keys = (f"{at}a", f"{at}b")
        events = [s.insert(key, name, **new) for key in keys for name in COLLECTIONS]
        pipeline.land([*events, s.insert(f"{at}c", **odd), s.update(f"{at}a", "other", **odd)])

    for at, end in enumerate(ENDS):
        land(at)
        with monkeypatch.context() as patch:
            _end_after(patch, *end)
            with pytest.raises(Crash):
                pipeline.run(columns="auto", parallel_collections=1)
    land(len(ENDS))
    pipeline.run()
    made = contents(pipeline)
    assert {len(rows) for rows in made.values()} == {14, 21}
    assert made["current/shop.orders"][2]["_rescued"] == {}
    assert made["current/shop.orders"][5]["_rescued"] == {"f0": '"x"'}
    pipeline.tables = f"{pipeline.tables}-rebuilt"
    pipeline.job(columns="auto").rebuild()
    assert contents(pipeline) == made
