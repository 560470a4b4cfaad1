"""A handler whose route says how it begins reads its documents as that says, on its own."""

from collections.abc import Mapping
from dataclasses import replace

from tailrace.engine.plan.row_source import NoRows
from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import StoredRows
from tests.unit.engine.changes import changes, until
from tests.unit.engine.scripted_driver import ScriptedDriver, refused
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.test_watcher_halts import STORED
from tests.unit.engine.watching import Destination, Watching


class Rows(NoRows):
    """Notes whether it was begun after a gap."""

    def __init__(self) -> None:
        self.after_gap = False

    def begin(
        self,
        stored: SnapshotProgress | None,
        *,
        fresh: bool,
        gap: bool,
        rows: Mapping[str, StoredRows],
        generation: int = 0,
    ) -> SnapshotProgress | None:
        self.after_gap = self.after_gap or gap
        return stored


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
