"""Drops and renames: where documents go; and a document inserted again is a new one.

Each case has a database of its own; all land in the same two batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline
from tests.scratch import MakeDirectory

Events = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    name: str
    first: Callable[[Stream], Events]
    second: Callable[[Stream], Events]
    current: dict[str, dict[str, Any]]
    history: dict[str, list[tuple[Any, ...]]]


def rename_again(s: Stream) -> Events:
    """The rename is delivered again, after a change of a document that it moved."""
    moved = s.rename("t", "b")
    return [moved, s.update("k", "b", n=3), {**moved}]


CASES = [
    Case(
        "drop",
        lambda s: [s.insert("k", "a", n=1), s.insert("l", "a", n=1)],
        lambda s: [s.drop("a"), s.insert("k", "a", m=2), s.event("invalidate", None)],
        {"a": {"k": {"m": 2}}},
        {
            "a": [
                ("k", {"n": 1}, "insert", "drop"),
                ("k", {"m": 2}, "insert", None),
                ("l", {"n": 1}, "insert", "drop"),
            ]
        },
    ),
    Case(
        "database",
        lambda s: [s.insert("k", "b.c", n=1)],
        lambda s: [s.update("k", "b.c", n=2), s.drop_database(), s.insert("z", "b.c", n=3)],
        {"b.c": {"z": {"n": 3}}},
        {
            "b.c": [
                ("k", {"n": 1}, "insert", "update"),
                ("k", {"n": 2}, "update", "dropDatabase"),
                ("z", {"n": 3}, "insert", None),
            ]
        },
    ),
    Case(
        "rename over a target",
        lambda s: [s.insert("k", "a", n=1), s.insert("l", "a", n=1), s.insert("t", "b", n=0)],
        lambda s: [
            s.update("k", "a", image=None, n=2),  # looked up under a name that no longer exists
            s.rename("a", "b"),
            s.update("k", "b", m=3),
            s.insert("k", "a", n=9),
        ],
        {"a": {"k": {"n": 9}}, "b": {"k": {"n": 2, "m": 3}, "l": {"n": 1}}},
        {
            "a": [
                ("k", {"n": 1}, "insert", "update"),
                ("k", {"n": 2}, "update", "rename"),
                ("k", {"n": 9}, "insert", None),
                ("l", {"n": 1}, "insert", "rename"),
            ],
            "b": [
                ("k", {"n": 2}, "rename", "update"),
                ("k", {"n": 2, "m": 3}, "update", None),
                ("l", {"n": 1}, "rename", None),
                ("t", {"n": 0}, "insert", "rename"),
            ],
        },
    ),
    Case(
        "snapshot over a gap",
        lambda s: [s.insert(key, n=1) for key in "abcd"],
        lambda s: [
            *s.snapshot(
                lambda: s.read("a", n=1),
                lambda: s.read("b", n=2),
                lambda: s.insert("e", n=1),
                lambda: s.delete("b"),
                lambda: s.read("f", n=1),
            ),
            s.insert("d", n=3),
            s.update("f", image={"_id": "f", "n": 2}, n=2),
        ],
        {"orders": {"a": {"n": 1}, "d": {"n": 3}, "e": {"n": 1}, "f": {"n": 2}}},
        {
            "orders": [
                ("a", {"n": 1}, "insert", "read"),
                ("a", {"n": 1}, "read", None),
                ("b", {"n": 1}, "insert", "read"),
                ("b", {"n": 2}, "read", "delete"),
                ("c", {"n": 1}, "insert", "snapshotEnd"),
                ("d", {"n": 1}, "insert", "snapshotEnd"),
                ("d", {"n": 3}, "insert", None),
                ("e", {"n": 1}, "insert", None),
                ("f", {"n": 1}, "read", "update"),
                ("f", {"n": 2}, "update", None),
            ]
        },
    ),
    Case(
        "collections gone in a gap",
        lambda s: [
            *(s.insert("a", name, n=1) for name in ("orders", "gone", "capped", "left")),
            s.insert("b", "gone", n=1),
        ],
        lambda s: [
            *s.snapshot(
                lambda: s.read("a", n=2),
                lambda: s.insert("a", "gone", n=3),  # recreated meanwhile
                lambda: s.insert("d", "new", n=1),
                more={"capped": "refused", "left": "dropped"},
                chosen=[],
            ),
            s.insert("c", "gone", n=4),
        ],
        {
            "orders": {"a": {"n": 2}},
            "gone": {"a": {"n": 3}, "c": {"n": 4}},
            "new": {"d": {"n": 1}},
            "capped": {"a": {"n": 1}},
            "left": {"a": {"n": 1}},
        },
        {
            "gone": [
                ("a", {"n": 1}, "insert", "insert"),
                ("a", {"n": 3}, "insert", None),
                ("b", {"n": 1}, "insert", "snapshotEnd"),
                ("c", {"n": 4}, "insert", None),
            ],
            "capped": [("a", {"n": 1}, "insert", None)],
        },
    ),
    Case(
        "the one collection gone in a gap",
        lambda s: [s.insert("a", n=1), s.insert("a", "other", n=1)],
        lambda s: s.snapshot(collection="orders", collections=[], chosen=[]),
        {"orders": {}, "other": {"a": {"n": 1}}},
        {"orders": [("a", {"n": 1}, "insert", "snapshotEnd")]},
    ),
    Case(
        "snapshot of one collection that was chosen",
        lambda s: [s.insert("a", n=1), s.insert("a", "other", n=1)],
        lambda s: s.snapshot(lambda: s.read("b", n=1), chosen=["orders"]),
        {"orders": {"b": {"n": 1}}, "other": {"a": {"n": 1}}},
        {},
    ),
    Case(
        "snapshot with a filter",
        lambda s: [s.insert("a", n=1), s.insert("b", n=1)],
        lambda s: s.snapshot(lambda: s.read("a", n=2), filter='{"n": 2}'),
        {"orders": {"a": {"n": 2}, "b": {"n": 1}}},
        {},
    ),
    Case(
        "exchange",
        lambda s: [s.insert("k", "a", n=1), s.insert("k", "b", n=2)],
        lambda s: [s.rename("a", "t"), s.rename("b", "a"), *rename_again(s)],
        {"a": {"k": {"n": 2}}, "b": {"k": {"n": 3}}, "t": {}},
        {"t": [("k", {"n": 1}, "rename", "rename")]},
    ),
]


@pytest.fixture(scope="module")
def pipeline(spark: SparkSession, session_directory: MakeDirectory) -> Pipeline:
    pipeline = Pipeline(spark, session_directory("statements"))
    streams = {case.name: Stream(case.name.replace(" ", "")) for case in CASES}
    for batch in ("first", "second"):
        pipeline.land([e for case in CASES for e in getattr(case, batch)(streams[case.name])])
        pipeline.run()
    return pipeline


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_statement(case: Case, pipeline: Pipeline) -> None:
    database = case.name.replace(" ", "")
    for collection, documents in case.current.items():
        assert pipeline.current(f"{database}.{collection}") == documents
    for collection, versions in case.history.items():
        assert pipeline.history(f"{database}.{collection}") == versions
