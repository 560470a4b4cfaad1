"""A handler whose route says how it begins reads its documents as that says, on its own."""

from dataclasses import replace

import pytest

from tailrace.engine import shared_stream
from tailrace.engine.plan.row_source import KnownSnapshots, NoRows, ObservedSnapshot
from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import SnapshotMode, SnapshotState
from tests.unit.engine.changes import changes, settle, until
from tests.unit.engine.scripted_driver import ScriptedDriver, refused
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.test_subscriptions import SIZE
from tests.unit.engine.test_watcher_halts import STORED
from tests.unit.engine.watching import Destination, Watching


class Rows(NoRows):
    """Notes whether it was begun after a gap."""

    def __init__(self) -> None:
        self.after_gap = False

    def begin(self, known: KnownSnapshots) -> SnapshotProgress | None:
        self.after_gap = self.after_gap or known.gap
        return known.stored


async def test_after_a_gap_it_begins_a_snapshot_of_its_own() -> None:
    """That of the scope may have a filter which leaves out what this handler needs."""
    driver, store = ScriptedDriver(*changes(1, 4)), ScriptedStore(STORED)
    driver.refused_starts = {"resume after 2": refused(286), "at 2": refused(286)}
    audit, index, shared, own = Destination("audit"), Destination("index"), Rows(), Rows()
    apart = replace(index.routed(), begins_apart=True, rows=lambda: own)
    watching = Watching(
        driver, apart, audit.routed(), store=store, skip_lost_history=True, rows=shared
    )
    async with watching.run():
        await until(lambda: shared.after_gap and own.after_gap)
        await until(lambda: not watching.watcher.apart)
        driver.oplog += changes(4, 5)
        await until(lambda: audit.handled == index.handled == [4])


class Requested(NoRows):
    """A snapshot that an operator has requested, and paused: the handler has not come to that."""

    progress = SnapshotProgress("5f3a", SnapshotMode.REQUESTED, paused=True)

    def observed(self) -> ObservedSnapshot | None:
        return ObservedSnapshot(self.progress)


async def test_a_handler_with_a_paused_snapshot_stays_on_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request waits behind what the handler still handles: then it is in no position yet."""
    monkeypatch.setattr(shared_stream, "_FIRST_SECONDS", 0.0)
    audit, index, rows = Destination("audit"), Destination("index"), Requested()
    index.held = {1}
    one = Watching(
        ScriptedDriver(*changes(1, 300), batch_size=1),
        audit.routed(),
        replace(index.routed(concurrency=1), rows=lambda: rows),
        budget=5 * SIZE,
    )
    async with one.run():
        await until(lambda: len(audit.handled) == 299 and "index" in one.watcher.apart)
        index.held = set()
        await until(lambda: len(index.handled) == 299)
        await settle()
        assert "index" in one.watcher.apart
        rows.progress = replace(rows.progress, state=SnapshotState.CANCELLED)
        one.driver.oplog += changes(300, 310)
        await until(lambda: not one.watcher.apart)
