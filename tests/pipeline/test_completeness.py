"""Since when a table holds all documents of its collection: as far as the stream tells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from bson import Timestamp
from deltalake import DeltaTable

from tailrace.pipeline.completeness import COMPLETE, Whole, replayed
from tailrace.pipeline.lineage import Statement
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline

UNKNOWN = Whole(False, None, "start")


def statement(at: int, operation: str, table: str, target: str = "") -> Statement:
    return Statement(at, operation, "shop", table, target)


def known(*statements: Statement, gaps: Mapping[str, int] | None = None, **spared: set[str]) -> Any:
    return replayed(statements, gaps or {}, spared).of


CASES: list[tuple[str, list[Statement], dict[str, int], dict[str, Whole]]] = [
    ("nothing is known at first", [], {}, {"a": UNKNOWN}),
    ("created", [statement(1, "create", "a")], {}, {"a": Whole(True, 1, "create"), "b": UNKNOWN}),
    (
        "dropped, and created again",
        [statement(1, "drop", "a"), statement(2, "create", "a")],
        {},
        {"a": Whole(True, 1, "drop")},
    ),
    (
        "its database dropped, named before or not",
        [statement(1, "create", "shop.a"), statement(2, "dropDatabase", "")],
        {},
        {
            "shop.a": Whole(True, 2, "dropDatabase"),
            "shop.b": Whole(True, 2, "dropDatabase"),
            "other.a": UNKNOWN,
        },
    ),
    (
        "renamed over from outside",
        [statement(1, "create", "b"), statement(2, "rename", "a", "b")],
        {},
        {"a": Whole(True, 2, "rename"), "b": Whole(False, 2, "rename")},
    ),
    (
        "renamed over by one that is whole",
        [statement(1, "create", "a"), statement(2, "rename", "a", "b")],
        {},
        {"a": Whole(True, 2, "rename"), "b": Whole(True, 2, "rename")},
    ),
    ("a gap", [statement(1, "create", "a")], {"s": 2}, {"a": Whole(False, 2, "gap")}),
    (
        "created behind a gap, which may have held a drop",
        [statement(1, "create", "a"), statement(3, "create", "a")],
        {"s": 2},
        {"a": Whole(False, 2, "gap")},
    ),
    (
        "dropped behind a gap",
        [statement(1, "create", "a"), statement(3, "drop", "a")],
        {"s": 2},
        {"a": Whole(True, 3, "drop")},
    ),
    (
        "a gap before a rename",
        [statement(1, "create", "a"), statement(3, "rename", "a", "b")],
        {"s": 2},
        {"b": Whole(False, 3, "rename")},
    ),
]


@pytest.mark.parametrize(
    ("statements", "gaps", "tables"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_what_is_known(
    statements: list[Statement], gaps: dict[str, int], tables: dict[str, Whole]
) -> None:
    of = known(*statements, gaps=gaps)
    assert {table: of(table) for table in tables} == tables


def test_a_gap_spares_what_only_other_scopes_have() -> None:
    statements = [statement(1, "create", "a"), statement(1, "create", "b")]
    of = known(*statements, gaps={"s": 2}, s={"b"})
    assert (of("a").complete, of("b").complete) == (False, True)


def said(pipeline: Pipeline, collection: str, kind: str = "current") -> tuple[bool, str]:
    """What the property of a table says."""
    table = DeltaTable(pipeline.tables / kind / f"shop.{collection}")
    record = json.loads(table.metadata().configuration[COMPLETE])
    assert record["since"]
    return record["complete"], record["reason"]


def test_the_tables_and_the_run_say_so(pipeline: Pipeline) -> None:
    """A stream that began late, one that saw it all, a rename from outside, and then a gap."""
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
