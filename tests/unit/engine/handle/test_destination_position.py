"""A destination has exactly one position at any time; another one means that it was set back."""

from collections.abc import Sequence

import pytest

from tailrace import Fenced
from tailrace.engine import WatcherState
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition
from tests.unit.engine.changes import change, changes, until
from tests.unit.engine.database import Database, down
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Watching


class Comparing(Database):
    """Compares in each write what is stored with what it knows, as it should."""

    known: Sequence[int] = ()

    async def position(self, identity: object) -> SinkPosition | None:
        found = await super().position(identity)
        self.known = tuple(self.stored)
        return found

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        if self.error is None and tuple(self.stored) != self.known:
            raise Fenced("another position is stored")
        await super().on_events(events)
        self.known = tuple(self.stored)


@pytest.mark.parametrize("notices", ["by a write", "after an outage"])
@pytest.mark.parametrize(
    ("stored", "then"),
    [
        ([1, 2], [1, 2, 3, 4]),
        ([1], [1, 2, 3, 4]),  # where it stood when the run began
    ],
)
async def test_a_restored_destination_gets_what_it_lacks(
    notices: str, stored: list[int], then: list[int]
) -> None:
    database = Comparing()
    database.stored = [1]
    driver = ScriptedDriver(*changes(1, 4))
    async with Watching(driver, database.routed("position")).run() as watching:
        await until(lambda: database.stored == [1, 2, 3])
        await watching.until_state(WatcherState.CAUGHT_UP)
        database.stored = list(stored)
        if notices == "after an outage":
            database.error = down()
        driver.oplog.append(change(4))
        await until(lambda: database.error is None or len(database.calls) > 1)
        database.error = None
        await until(lambda: database.stored == then)
        assert "its destination was restored" in watching.last_error


@pytest.mark.parametrize("notices", ["by a write", "after an outage"])
async def test_an_emptied_destination_continues_and_a_snapshot_is_advised(notices: str) -> None:
    """Also if it had nothing when the run began."""
    database = Comparing()
    driver = ScriptedDriver(*changes(1, 4))
    watching = Watching(driver, database.routed("position"), checkpoint_seconds=0.0001)
    async with watching.run():
        await until(lambda: database.stored == [1, 2, 3])
        await watching.until_state(WatcherState.CAUGHT_UP)
        database.stored = []
        if notices == "after an outage":
            database.error = down()
        driver.oplog.append(change(4))
        await until(lambda: database.error is None or len(database.calls) > 1)
        database.error = None
        await until(lambda: database.stored == [4])
        assert "'tailrace snapshot start orders'" in watching.last_error


async def test_a_backup_that_is_restored_into_an_empty_destination_is_taken() -> None:
    database, driver = Comparing(), ScriptedDriver()
    async with Watching(driver, database.routed("position")).run() as watching:
        await watching.until_state(WatcherState.CAUGHT_UP)
        database.stored = [1]
        driver.oplog += changes(1, 4)[1:]
        await until(lambda: database.stored == [1, 2, 3])


async def test_a_position_that_another_process_moved_on_gives_the_scope_up() -> None:
    database = Comparing()
    driver = ScriptedDriver(*changes(1, 4))
    async with Watching(driver, database.routed("position")).run(stop=False) as watching:
        await until(lambda: database.stored == [1, 2, 3])
        await watching.until_state(WatcherState.CAUGHT_UP)
        database.stored.append(4)
        driver.oplog += [change(4), change(5)]
    assert watching.watcher.fenced
    assert database.stored == [1, 2, 3, 4]
