"""The time since which a table has all documents of its collection."""

import json

import pytest
from bson import Timestamp
from deltalake import DeltaTable

from tailrace.pipeline.completeness import COMPLETE, TableCompleteness, replayed
from tailrace.pipeline.lineage import Statement
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline

Known = tuple[bool, int | None, str]
UNKNOWN: Known = (False, None, "start")


def statement(at: int, operation: str, table: str, target: str = "") -> Statement:
    return Statement(at, operation, "shop", table, target)


CREATED = statement(1, "create", "shop.a")
CASES: dict[str, tuple[list[Statement], dict[str, int], dict[str, Known]]] = {
    "nothing is known at first": ([], {}, {"a": UNKNOWN}),
    "created": ([CREATED], {}, {"shop.a": (True, 1, "create"), "b": UNKNOWN}),
    "dropped, and created again": (
        [statement(1, "drop", "a"), statement(2, "create", "a")],
        {},
        {"a": (True, 1, "drop")},
    ),
    "its database dropped, named before or not": (
        [CREATED, statement(2, "dropDatabase", "")],
        {},
        {
            "shop.a": (True, 2, "dropDatabase"),
            "shop.b": (True, 2, "dropDatabase"),
            "other.a": UNKNOWN,
        },
    ),
    "replaced by an incomplete collection": (
        [statement(1, "create", "b"), statement(2, "rename", "a", "b")],
        {},
        {"a": (True, 2, "rename"), "b": (False, 2, "rename")},
    ),
    "replaced by a complete collection": (
        [CREATED, statement(2, "rename", "shop.a", "b")],
        {},
        {"shop.a": (True, 2, "rename"), "b": (True, 2, "rename")},
    ),
    "a gap": ([CREATED], {"s": 2}, {"shop.a": (False, 2, "gap")}),
    "created after a gap, which may have held a drop": (
        [CREATED, statement(3, "create", "shop.a")],
        {"s": 2},
        {"shop.a": (False, 2, "gap")},
    ),
    "read by a snapshot after a gap": (
        [CREATED, statement(3, "snapshotEnd", "shop.a")],
        {"s": 2},
        {"shop.a": (True, 3, "snapshot"), "shop.b": UNKNOWN},
    ),
    "not there when a snapshot of all was taken after a gap": (
        [CREATED, Statement(3, "snapshotEnd", "shop", "", "", 2, ("shop.b",))],
        {"s": 2},
        {
            "shop.a": (True, 3, "snapshot"),
            "shop.c": (True, 3, "snapshot"),
            "shop.b": UNKNOWN,
            "other.a": UNKNOWN,
        },
    ),
    "a gap after that": (
        [Statement(1, "snapshotEnd", "", "", "", 1)],
        {"s": 2},
        {"shop.a": (False, 2, "gap")},
    ),
    "dropped after a gap": (
        [CREATED, statement(3, "drop", "shop.a")],
        {"s": 2},
        {"shop.a": (True, 3, "drop")},
    ),
    "a gap before a rename": (
        [CREATED, statement(3, "rename", "shop.a", "b")],
        {"s": 2},
        {"b": (False, 3, "rename")},
    ),
    "a gap in another scope": ([CREATED], {"other": 2}, {"shop.a": (True, 1, "create")}),
}


@pytest.mark.parametrize("name", CASES)
def test_statements_and_gaps_decide_since_when_a_table_is_complete(name: str) -> None:
    statements, gaps, tables = CASES[name]
    known = replayed(statements, gaps, {"other": {"shop.a"}})
    assert {t: known.of(t) for t in tables} == {t: TableCompleteness(*k) for t, k in tables.items()}


def said(pipeline: Pipeline, collection: str, kind: str = "current") -> tuple[bool, str]:
    """The value of a table's property."""
    table = DeltaTable(pipeline.tables / kind / f"shop.{collection}")
    record = json.loads(table.metadata().configuration[COMPLETE])
    assert record["since"]
    return record["complete"], record["reason"]


def test_the_tables_and_the_run_say_since_when_a_table_is_complete(pipeline: Pipeline) -> None:
    """A stream that began late, one that saw everything, a rename from outside, and then a gap."""
    s = Stream()
    pipeline.land(
        [
            s.insert("k", "old", n=1),
            s.event("create", "new"),
            s.insert("k", "new", n=1),
            s.insert("k", "over", n=1),
            s.rename("outside", "over"),
        ]
    )
    progress = pipeline.run()
    assert progress.incomplete.keys() == {"shop.old", "shop.over"}
    assert said(pipeline, "old") == said(pipeline, "old", "history") == (False, "start")
    assert said(pipeline, "new") == (True, "create")
    assert said(pipeline, "over") == (False, "rename")
    rows = [row for row in pipeline.table("quality") if row["stage"] == "current"]
    assert {(row["collection"], row["complete"], row["reason"]) for row in rows} >= {
        ("old", False, "start"),
        ("new", True, "create"),
        ("over", False, "rename"),
    }
    assert all(row["since"] for row in rows)
    lost = Timestamp(1_700_000_900, 1)
    pipeline.land([], gap={"reason": "the oplog", "since": [lost.time, lost.inc]})
    pipeline.land([s.drop("old"), s.insert("k", "old", n=2), s.insert("l", "new", n=2)])
    assert pipeline.run().incomplete.keys() == {"shop.new"}
    assert said(pipeline, "old") == (True, "drop")
    assert said(pipeline, "new") == (False, "gap")
