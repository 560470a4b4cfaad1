"""Declared columns: a value is in its column or rescued, and every rescue is counted."""

import json
import random
import shutil
from collections import Counter
from typing import Any

import bson
import polars
import pytest
import yaml
from bson import ObjectId
from pyspark.sql import SparkSession

from tailrace.cli import main
from tailrace.config.pipeline import OWN_COLUMNS, PipelineSettings
from tailrace.errors import PipelineRefused
from tailrace.event.extended_json import to_json
from tailrace.pipeline import views
from tailrace.pipeline.republication import republish
from tests.pipeline.columns import (
    ABSENT,
    COLUMNS,
    PATHS,
    TYPES,
    VALUES,
    document_of,
    fitting,
    same,
)
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline


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
            versions.append({"_id": at, **document_of(values)})
            event = s.insert if at % 2 else s.replace
            events.append(event(at, **document_of(values)))
            if at % 5 == 0:
                value = chance.choice(VALUES[1:])
                changed = {**versions[-1], "long": {"of it": value}}
                versions.append(changed)
                events.append(s.update(at, long={"of it": value}))
        pipeline.land([*events, s.delete(-1)])
        with pipeline.compiled():
            pipeline.run(**settings)

    counted: Counter[str] = Counter()
    stored = polars.read_delta(str(pipeline.tables / "history" / "shop.orders"))
    times = [name for name, kind in TYPES.items() if kind == "timestamp"]
    stored = stored.with_columns(polars.col(times).dt.epoch("ms"))
    expected = {to_json(bson.encode(version), canonical=True): version for version in versions}
    assert len(stored) == len(versions)
    for row in stored.to_dicts():
        source = expected[row["document"]]
        rescued = json.loads(row["_rescued"] or "{}")
        counted.update(rescued.keys())
        assert row["_rescued"] is None or rescued
        for name, kind in TYPES.items():
            value: Any = source
            for part in PATHS[name].split("."):
                value = value.get(part, ABSENT) if isinstance(value, dict) else ABSENT
            wanted = fitting(value, kind)
            if value is ABSENT or value is None:
                expected_here, there = None, False
            elif wanted is ABSENT:
                expected_here, there = None, True
                exact = json.loads(to_json(bson.encode({"v": value}), canonical=True))["v"]
                assert json.loads(rescued[name]) == exact, (name, value)
            else:
                expected_here, there = wanted, False
            assert same(row[name], expected_here), (name, value, row[name])
            assert (name in rescued) == there, (name, value, row[name])
    assert rescued_of(pipeline) == counted
    assert set(counted) == set(COLUMNS)
    view = views.history(spark, str(pipeline.tables), "shop.orders")
    assert view.where("_rescued IS NOT NULL").count() == stored["_rescued"].count()
    assert set(view.columns) == {*stored.columns, "json"}


def typed(pipeline: Pipeline, kind: str = "current") -> polars.DataFrame:
    """A table's columns after ``valid_from_position``, ordered by key."""
    frame = pipeline.frame(f"{kind}/shop.orders").sort("key", "ordinal")
    return frame.drop(*(set(frame.columns) & OWN_COLUMNS - {"_rescued"}))


def test_declared_columns_are_added_and_kept_and_rescued_values_counted(
    pipeline: Pipeline, spark: SparkSession
) -> None:
    """Each run declares its columns, even if nothing has landed since the last one.

    A run without columns keeps the declared ones. Repetitions and deletions count nothing. A
    document that no VARIANT can hold (a field twice) is rescued whole. A table that was made anew
    is counted again, once. A column that is no longer declared is filled until a rebuild drops it.
    """
    s = Stream()
    first = s.insert("k", n="x", m="y")
    pipeline.land([first])
    pipeline.run(history=False)
    assert typed(pipeline).columns == ["_rescued"]
    pipeline.run(columns={"shop.orders": {"n": "long"}, "shop.ä": {"n": "long"}}, history=False)
    assert typed(pipeline).rows() == [(None, None)]  # null until something is published
    assert rescued_of(pipeline) == {}
    twice = s.insert("t")
    once = bson.encode({"_id": "t", "n": 1, "m": 2})
    twice["fullDocument"] = once.replace(b"\x10m\0", b"\x10n\0")
    events = [s.replace("k", n="x", m="y"), s.delete("k"), s.update("gone", image=None, n=1)]
    pipeline.land([dict(first), twice, *events, s.insert("l", n=5)])
    pipeline.run(history=False)
    assert rescued_of(pipeline) == {"n": 1, "document": 1}
    text = '{"_id":"t","n":{"$numberInt":"1"},"n":{"$numberInt":"2"}}'
    one, other = typed(pipeline).select("n", "_rescued").rows()
    assert (one, other[0], json.loads(other[1])) == ((5, None), None, {"document": text})

    shutil.rmtree(pipeline.tables / "current" / "shop.orders")
    for _ in range(2):
        pipeline.land([s.drop("other")])
        pipeline.run(columns={"shop.orders": {"m": "long"}}, history=False)
        assert rescued_of(pipeline) == {"n": 1, "m": 2, "document": 2}
    pipeline.run(columns={}, history=False)
    pipeline.land([s.insert("m", m=7)])
    pipeline.run(history=False)
    assert typed(pipeline).get_column("m").to_list() == [None, 7, None]
    given = views.current(spark, str(pipeline.tables), "shop.orders", {"n": "string"})
    assert given.columns[-2:] == ["n", "_rescued"]
    assert [row.n for row in given.orderBy("key").collect()] == [None, None, None]
    pipeline.job(history=False).rebuild()
    assert typed(pipeline).columns == ["_rescued"]


def test_a_column_of_another_type_needs_a_rebuild(stored: Pipeline) -> None:
    """So does one of another field, and a name that differs in its case only; a column of another
    name is one more. The tables are in a bucket."""
    pipeline, row = stored, {"n": 5, "m": 6}
    pipeline.land([Stream().insert("k", **row)])
    pipeline.run(columns={"shop.orders": {"n": "long"}})
    for changed, message in (
        ({"n": "string"}, r"'n' holds n as long, and the file declares 'n' as n as string"),
        ({"n": {"path": "m", "type": "long"}}, "'n' as m as long"),
        ({"N": "long"}, "declares 'N'"),
    ):
        with pytest.raises(PipelineRefused, match=f"{message}.*another name.*--rebuild"):
            pipeline.run(columns={"shop.orders": changed})
    pipeline.land([Stream(seconds=1_800_000_000).insert("l", **row)])
    pipeline.run(columns={"shop.orders": {"renamed": {"path": "n", "type": "long"}}})
    assert typed(pipeline).rows() == [(None, 5, 5)] * 2
    columns = {"n": "string", "number": {"path": "m", "type": "double"}}
    pipeline.job(columns={"shop.orders": columns}).rebuild()
    for kind in ("current", "history"):
        for found in typed(pipeline, kind).to_dicts():
            rescued = '{"n":"{\\"$numberInt\\":\\"5\\"}"}'
            assert found == {"n": None, "number": 6.0, "_rescued": rescued}


def test_republished_tables_have_exactly_the_declared_columns_in_all_rows(
    in_format: Pipeline, spark: SparkSession
) -> None:
    """Old versions too. A killed one changes nothing; it may be given again."""
    pipeline, s = in_format, Stream()
    pipeline.land([s.insert("k", n=1, m="x"), s.insert("l", n=2), s.insert("k", "users")])
    pipeline.run(columns={"shop.orders": {"m": "string"}})
    pipeline.land([s.replace("k", n=3)])
    pipeline.run()
    before = pipeline.history()
    store, reports = pipeline.store, []

    def report(*progress: Any) -> None:
        reports.append(progress)
        if len(reports) == 1:
            raise KeyboardInterrupt

    declared = PipelineSettings.model_validate({"columns": {"shop.orders": {"n": "long"}}}).columns
    with pytest.raises(KeyboardInterrupt):
        republish(spark, store, declared, [], report)
    assert typed(pipeline).columns == ["_rescued", "m"]
    assert republish(spark, store, declared, ["shop.orders"], report) == 2
    assert reports[1:] == [("current/shop.orders", 2, 2), ("history/shop.orders", 3, 3)]
    assert typed(pipeline).rows() == [(None, 3), (None, 2)]
    assert typed(pipeline, "history").get_column("n").to_list() == [1, 3, 2]
    assert pipeline.history() == before
    pipeline.land([s.insert("m", n=4)])
    pipeline.run()
    assert typed(pipeline).get_column("n").to_list() == [3, 2, 4]
    with pytest.raises(PipelineRefused, match=r"no table of shop\.none"):
        republish(spark, store, None, ["shop.none"], report)


def test_a_suggested_declaration_counts_what_will_be_rescued(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """The proposal is what a file may have, and its counts are those of the tables with it."""
    s, chance = Stream(), random.Random(2)
    odd = {"a b": 1, "Key": 2, "no": True, 'qu"ote': 1, "": 1, "list": [{"x": 1}]}
    values = [value for value in VALUES if value is not ABSENT]
    documents: list[dict[str, Any]] = [
        {"n": at, "mostly": chance.choice(values) if at % 20 == 0 else 1.5, "deep": {"er": "x"}}
        | ({"oid": ObjectId()} | odd if at % 2 else {})
        for at in range(200)
    ]
    for value, document in zip(values, documents, strict=False):
        document["any"] = value
    pipeline.land([s.insert(at, **document) for at, document in enumerate(documents)])
    pipeline.run(history=False)
    arguments = ["columns", "suggest", "--tables", str(pipeline.tables)]
    assert main([*arguments, "--collection", "shop.orders"]) == 0
    text = capsys.readouterr().out
    proposed = yaml.safe_load(text)["pipeline"]["columns"]
    columns = proposed["shop.orders"]
    assert {"n": "long", "deep.er": "string", "no": "boolean"}.items() <= columns.items()
    assert columns["a_b"] == {"path": "a b", "type": "long"}
    assert (columns["oid"], columns["list"], columns["_id"]) == ("objectId", "json", "long")
    assert "# any: no type fits" in text
    pipeline.job(columns=proposed, history=False).rebuild()
    rescued = dict.fromkeys(columns, 0) | dict(rescued_of(pipeline))
    assert rescued.pop("mostly") > 0
    assert not any(rescued.values())
    assert main([*arguments, "--collection", "shop.none"]) == 1
    assert "there is no table of shop.none" in capsys.readouterr().err


def test_a_column_must_be_one_that_a_view_can_have(pipeline: Pipeline, spark: SparkSession) -> None:
    """The configuration, which cannot ask Spark, knows the columns of the widest view."""
    pipeline.land([Stream().insert("k", n=1)])
    pipeline.run()
    for columns, message in (
        ({"n": "number"}, "n: must be string, long, .*not 'number'"),
        ({"Key": "string"}, "Key: every table has a column of that name"),
        ({'a"b': "string"}, "without any quotes"),
    ):
        with pytest.raises(ValueError, match=message):
            views.current(spark, str(pipeline.tables), "shop.orders", columns)
    view = views.history(spark, str(pipeline.tables), "shop.orders", {"n": "long"})
    assert {*view.columns} - {"n"} == OWN_COLUMNS
