"""Two thousand collections of which forty change: a run opens the tables of those forty."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tailrace.pipeline import quality
from tailrace.pipeline.location import Location
from tailrace.pipeline.tables import DeltaStore, Table
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline

CHANGING, ALL = 40, 2000
IN_BUCKET = 10, 50
"""There are fewer in a bucket, where each is written by several requests to a server."""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each table was opened."""
    counts: Counter[str] = Counter()
    load = DeltaStore.load

    def counted(self: DeltaStore, table: Table, *arguments: Any) -> Any:
        counts[table.name] += 1
        return load(self, table, *arguments)

    monkeypatch.setattr(DeltaStore, "load", counted)
    return counts


def test_a_run_opens_only_the_tables_of_collections_that_changed(
    either: Pipeline, opened: Counter[str]
) -> None:
    """Of the others there is only the log, which is that of one of them."""
    changing, there = (CHANGING, ALL) if isinstance(either.tables, Path) else IN_BUCKET
    s, names = Stream(), [f"c{at}" for at in range(changing)]
    either.land([s.insert("k", name, n=0) for name in names])
    either.run(history=False)
    log = f"_delta_log/{0:020d}.json"
    commit = Location.of(f"{either.tables}/current/shop.c0/{log}")
    with commit.files.open_input_file(commit.path) as source:
        content = source.read()

    def copy(at: int) -> None:
        place = Location.of(f"{either.tables}/current/shop.c{at}")
        (place / "_delta_log").make()
        with place.files.open_output_stream(f"{place.path}/{log}") as stream:
            stream.write(content)

    with ThreadPoolExecutor(8) as threads:
        assert all(done is None for done in threads.map(copy, range(changing, there)))
    assert len(either.collections()) == there
    opened.clear()
    either.land([s.update("k", name, n=1) for name in names])
    assert either.run(history=False).published == changing
    assert opened.keys() == {"changes", "quality", *(f"current/shop.{name}" for name in names)}
    assert max(opened.values()) <= 3
    assert either.current(f"shop.{names[-1]}") == {"k": {"n": 1}}


def test_publications_that_a_crash_left_uncounted_are_counted_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = Stream()
    pipeline.land([s.insert("k", "a"), s.insert("k", "b")])
    monkeypatch.setattr(quality, "record", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pipeline.run(history=False)
    monkeypatch.undo()
    pipeline.land([s.insert("k", "c")])
    for _ in range(2):
        pipeline.run(history=False)
        rows = [row for row in pipeline.table("quality") if row["stage"] == "current"]
        assert sorted((row["collection"], row["events"]) for row in rows) == [
            *(("a", 1), ("b", 1), ("c", 1)),
        ]
