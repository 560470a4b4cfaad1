"""Wherever batches end, the tables are those of one rebuild."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.pipeline import log_files, table_groups
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline

TABLES = ["a", "b"]


def assert_as_rebuilt(pipeline: Pipeline, *tables: str) -> None:
    """The tables that the batches made are those of a rebuild."""

    def state() -> list[Any]:
        names = [f"shop.{table}" for table in tables]
        return [
            *(sorted(pipeline.current(name).items(), key=repr) for name in names),
            *(pipeline.history(name) for name in names),
        ]

    found = state()
    pipeline.job().rebuild()
    assert found == state()


def test_a_version_that_a_drop_ended_is_there_once_though_two_scopes_land_it(
    pipeline: Pipeline,
) -> None:
    s = Stream()
    events = [s.insert("k", "a", n=1), s.drop("a")]
    for scope in ("orders", "shop"):
        pipeline.land([dict(event) for event in events], scope)
        pipeline.run()
    assert pipeline.history("shop.a") == [("k", {"n": 1}, "insert", "drop")]
    assert_as_rebuilt(pipeline, "a")


def snapshot_of(s: Stream, table: str, *events: Callable[[], dict[str, Any]]) -> list[Any]:
    """A snapshot of one collection, by its name at the end, with events meanwhile."""
    whole = {"db": s.database, "coll": table, "uuid": "", "state": "done", "documents": 1}
    return s.snapshot(*events, collections=[whole])


def test_a_snapshot_ends_documents_that_a_rename_moved_while_it_ran(pipeline: Pipeline) -> None:
    s = Stream()
    pipeline.land([s.insert("kept", "a", n=1), s.insert("gone", "a", n=1)])
    pipeline.run()
    *before, row, end = snapshot_of(
        s,
        "b",
        lambda: s.insert("new", "a", n=2),  # behind the read position: no row
        lambda: s.rename("a", "b"),
        lambda: s.read("kept", "b", n=1),
    )
    pipeline.land(before)
    pipeline.run()
    pipeline.land([row, end])
    pipeline.run()
    assert pipeline.current("shop.b") == {"kept": {"n": 1}, "new": {"n": 2}}
    assert_as_rebuilt(pipeline, "a", "b")


def random_events(s: Stream, chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Events of two collections with drops and renames, and snapshots over some of them."""

    def one() -> dict[str, Any]:
        key, table = chance.choice("kl"), chance.choice(TABLES)
        match chance.randrange(12):
            case 0:
                return s.drop(table)
            case 1:
                return s.rename(*chance.sample(TABLES, 2))
            case 2 | 3:
                return s.delete(key, table)
            case _:
                return s.insert(key, table, n=chance.randrange(100))

    def row(table: str) -> Callable[[], dict[str, Any]]:
        return lambda: s.read(chance.choice("kl"), table, n=chance.randrange(100))

    events: list[dict[str, Any]] = []
    while len(events) < count:
        if chance.randrange(8):
            events.append(one())
        else:
            table = chance.choice(TABLES)
            meanwhile = [chance.choice([one, row(table)]) for _ in range(chance.randrange(6))]
            events += snapshot_of(s, table, *meanwhile)
    return events


@pytest.mark.parametrize("seed", range(2))
def test_batches_that_end_anywhere_give_the_tables_of_one_rebuild(
    pipeline: Pipeline, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two scopes land the same events, each with ends of its own, and one of them later.

    Tables share a job where both change, or always. This process decodes the events, or Spark.
    """
    monkeypatch.setattr(table_groups, "FEWEST", 2 - seed)
    monkeypatch.setattr(log_files, "ROWS", seed * log_files.ROWS)
    chance = random.Random(seed)
    events = random_events(Stream(), chance, 40)
    ends = {
        scope: sorted(chance.sample(range(1, len(events)), 1 + seed)) for scope in ("one", "two")
    }
    landed = dict.fromkeys(ends, 0)
    while any(position < len(events) for position in landed.values()):
        for scope in chance.choice([["one"], ["two"], ["one", "two"]]):
            end = next((each for each in ends[scope] if each > landed[scope]), len(events))
            if landed[scope] < end:
                pipeline.land([dict(each) for each in events[landed[scope] : end]], scope)
                landed[scope] = end
        pipeline.run()
    assert_as_rebuilt(pipeline, *TABLES)
