"""Declared columns: a value is in its column or rescued, and every rescue is counted."""

import json
import random
import shutil
from collections import Counter
from decimal import Decimal
from typing import Any

import bson
import pytest
from bson import Binary, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tailrace.config.pipeline import VIEW_COLUMNS
from tailrace.event.extended_json import to_json
from tailrace.pipeline import views
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline

KINDS = ("string", "long", "double", "boolean", "timestamp", "decimal")
COLUMNS = {f"{kind}.of it": kind for kind in KINDS} | {"deep.er.still": "long"}
ABSENT = object()

VALUES: list[Any] = [
    ABSENT, None, "", "text", "5", 'ä\u2028\0"\\ {"$numberInt":"5"}', True, False, {}, [], [1],
    *(0, 5, -1, 2**31 - 1, Int64(0), Int64(2**53), Int64(2**53 + 1), Int64(2**63 - 1)),
    *(Int64(-(2**63)), 0.0, -0.0, 3.0, 2.5, 0.1, 0.12345678901234567, 1e22, 1e300, 5e-324),
    *(float("nan"), float("inf"), float("-inf")),
    *(DatetimeMS(at) for at in (0, 1000, -1, -62135596800000, -62135596800001)),
    *(DatetimeMS(at) for at in (253402300799999, 253402300800000, 2**62, -(2**62))),
    *(Decimal128(text) for text in ("7.10", "0", "-0E-6176", "1E+3", "1.234567890123E+20")),
    *(Decimal128(text) for text in ("1E-7", "1.23E-9", "1.50E+6000", "NaN", "Infinity")),
    *(Decimal128(text) for text in ("0.12345678901", "0.123456789010", "9" * 28 + ".5")),
    *(Decimal128(text) for text in ("9" * 29, "-" + "9" * 34)),
    *(Binary(b"\0", 0), ObjectId("5f5e0f0f0f0f0f0f0f0f0f0f"), MinKey(), MaxKey()),
]  # fmt: skip


def fitting(value: Any, kind: str) -> Any:
    """The value as a column of this type has it; :data:`ABSENT` if it does not fit."""
    match kind, value:
        case ("string", str()) | ("boolean", bool()):
            return value
        case ("long" | "double", bool()):
            return ABSENT
        case "long", int():
            return int(value)
        case "double", float():
            return value
        case "double", int() if -(2**63) <= int(float(value)) < 2**63 and float(value) == value:
            return float(value)
        case "timestamp", DatetimeMS() if -62135596800000 <= int(value) <= 253402300799999:
            return int(value)
        case "decimal", Decimal128():
            return decimal(value.to_decimal())
    return ABSENT


def decimal(value: Decimal) -> Any:
    if not value.is_finite() or value.copy_abs() >= Decimal(10) ** 28:
        return ABSENT
    digits = str(value).partition("E-")
    behind = len(digits[0].partition(".")[2].rstrip("0")) + int(digits[2] or 0)
    return ABSENT if "E+" not in str(value) and behind > 10 else value


def same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)  # equal, or both NaN


def document(values: list[Any]) -> dict[str, Any]:
    """A document with these values at the paths of :data:`COLUMNS`."""
    made: dict[str, Any] = {}
    for path, value in zip(COLUMNS, values, strict=True):
        *parents, name = path.split(".")
        inside = made
        for parent in parents:
            inside = inside.setdefault(parent, {})
        if value is not ABSENT:
            inside[name] = value
    return made


def declared(pipeline: Pipeline) -> dict[str, Any]:
    return json.loads(
        DeltaTable(pipeline.tables / "changes").metadata().configuration["tailrace.columns"]
    )


def rescued_of(pipeline: Pipeline, collection: str = "orders") -> Counter[str]:
    """The content of the table of counts, by column, over all publications."""
    found: Counter[str] = Counter()
    for row in pipeline.table("quality"):
        assert (row["stage"] == "columns") == (row["field"] is not None)
        if row["collection"] == collection and row["stage"] == "columns":
            assert row["rescued"] > 0
            assert (row["database"], row["scope"]) == ("shop", "orders")
            found[row["field"]] += row["rescued"]
    return found


def test_a_value_is_in_its_column_or_rescued_and_counted(
    pipeline: Pipeline, spark: SparkSession
) -> None:
    """Every value in a column of every type, over several publications.

    Documents have random values; events are inserts, replacements and folded updates. Each value is
    in exactly one place, and the counts add up to the versions in the history's view.
    """
    chance = random.Random(1)
    s = Stream()
    landed: list[list[Any]] = [[value] * len(COLUMNS) for value in VALUES]
    landed += [[chance.choice(VALUES) for _ in COLUMNS] for _ in range(80)]
    settings = {"columns": {"shop.orders": COLUMNS}, "publish_ratio": 0.5}
    versions: list[dict[str, Any]] = []
    half = len(landed) // 2
    for part in (0, half):
        events = []
        for at, values in enumerate(landed[part : part + half or None], part):
            versions.append({"_id": at, **document(values)})
            event = s.insert if at % 2 else s.replace
            events.append(event(at, **document(values)))
            if at % 5 == 0:
                value = chance.choice(VALUES[1:])
                changed = {**versions[-1], "long": {"of it": value}}
                versions.append(changed)
                events.append(s.update(at, long={"of it": value}))
        pipeline.land([*events, s.delete(-1)])
        pipeline.run(**settings)

    counted: Counter[str] = Counter()
    view = views.history(spark, str(pipeline.tables), "shop.orders")
    times = [f"unix_millis(`{path}`)" if kind == "timestamp" else f"`{path}`"
             for path, kind in COLUMNS.items()]  # fmt: skip
    rows = view.selectExpr("json", "_rescued", *times).collect()
    expected = {to_json(bson.encode(version), canonical=True): version for version in versions}
    assert len(rows) == len(versions)
    for row in rows:
        source = expected[row[0]]
        rescued = json.loads(row[1]) if row[1] is not None else {}
        counted.update(rescued.keys())
        assert row[1] is None or rescued
        for (path, kind), found in zip(COLUMNS.items(), row[2:], strict=True):
            value: Any = source
            for name in path.split("."):
                value = value.get(name, ABSENT) if isinstance(value, dict) else ABSENT
            wanted = fitting(value, kind)
            if value is ABSENT or value is None:
                expected_here, there = None, False
            elif wanted is ABSENT:
                expected_here, there = None, True
                exact = json.loads(to_json(bson.encode({"v": value}), canonical=True))["v"]
                assert json.loads(rescued[path]) == exact, (path, value)
            else:
                expected_here, there = wanted, False
            assert same(found, expected_here), (path, value, found)
            assert (path in rescued) == there, (path, value, found)
    assert rescued_of(pipeline) == counted
    assert set(counted) == set(COLUMNS)


def test_declarations_of_columns_are_remembered_and_rescued_values_counted(
    pipeline: Pipeline, spark: SparkSession
) -> None:
    """Each run declares its columns, even if nothing has landed since the last one.

    A run without columns keeps the declared ones. Repetitions and deletions count nothing. A
    document that no VARIANT can hold (a field twice) is rescued whole. A rebuilt table is counted
    again, once.
    """

    def columns() -> list[str]:
        view = views.current(spark, str(pipeline.tables), "shop.orders")
        return view.columns[view.columns.index("document") + 1 :]

    s = Stream()
    first = s.insert("k", n="x", m="y")
    pipeline.land([first])
    pipeline.run(history=False)
    assert columns() == []
    pipeline.run(columns={"shop.orders": {"n": "long"}, "shop.ä": {"n": "long"}}, history=False)
    assert columns() == ["n", "_rescued"]
    assert set(declared(pipeline)) == {"shop.orders", "shop.!c3!a4"}
    assert rescued_of(pipeline) == {}  # nothing was published since
    twice = s.insert("t")
    once = bson.encode({"_id": "t", "n": 1, "m": 2})
    twice["fullDocument"] = once.replace(b"\x10m\0", b"\x10n\0")
    events = [s.replace("k", n="x", m="y"), s.delete("k"), s.update("gone", image=None, n=1)]
    pipeline.land([dict(first), twice, *events, s.insert("l", n=5)])
    pipeline.run(history=False)
    assert columns() == ["n", "_rescued"]
    assert rescued_of(pipeline) == {"n": 1, "document": 1}
    view = views.current(spark, str(pipeline.tables), "shop.orders").orderBy("key")
    number, double = view.select("json", "n", "_rescued", "document").collect()
    assert (number.n, number["_rescued"]) == (5, None)
    assert double.json == '{"_id":"t","n":{"$numberInt":"1"},"n":{"$numberInt":"2"}}'
    assert (double.n, double.document) == (None, None)
    assert json.loads(double["_rescued"]) == {"document": double.json}

    shutil.rmtree(pipeline.tables / "current" / "shop.orders")
    for _ in range(2):
        pipeline.land([s.drop("other")])
        pipeline.run(columns={"shop.orders": {"m": "long"}}, history=False)
        assert rescued_of(pipeline) == {"n": 1, "m": 2, "document": 2}
    pipeline.job(history=False).rebuild()
    assert columns() == ["m", "_rescued"]
    pipeline.run(columns={}, history=False)
    assert columns() == []
    given = views.current(spark, str(pipeline.tables), "shop.orders", {"n": "string"})
    assert [row.n for row in given.orderBy("key").collect()] == [None, None]


def test_a_column_must_be_one_that_a_view_can_have(pipeline: Pipeline, spark: SparkSession) -> None:
    """The configuration, which cannot ask Spark, knows the columns of the widest view."""
    pipeline.land([Stream().insert("k", n=1)])
    pipeline.run()
    for columns, message in (
        ({"n": "number"}, "no type 'number'; known: string"),
        ({"Key": "string"}, "read the field as document:Key"),
        ({'a"b': "string"}, "without any quotes"),
    ):
        with pytest.raises(ValueError, match=message):
            views.current(spark, str(pipeline.tables), "shop.orders", columns)
    view = views.history(spark, str(pipeline.tables), "shop.orders", {"n": "long"})
    assert {*view.columns} - {"n"} == VIEW_COLUMNS
