"""A scope that begins now begins at the time when that was said, whatever comes in between."""

from datetime import UTC, datetime

import pytest
from bson.timestamp import Timestamp

from tailrace.cli.checkpoints import reset_position
from tailrace.engine import WatcherState
from tailrace.model.start import NOW
from tailrace.stores.memory import MemoryDesiredStates
from tests.unit.engine.changes import change, time, until
from tests.unit.engine.scripted_driver import ScriptedDriver, disconnected
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.test_desired_states import desired
from tests.unit.engine.watching import Destination, Watching

pytestmark = pytest.mark.anyio


class Source:
    """A scope that begins now, on a server whose last change is the first."""

    def __init__(self) -> None:
        self.driver = ScriptedDriver(change(1))
        self.store = ScriptedStore()
        self.states = MemoryDesiredStates()
        self.asked = 0

    async def now(self) -> Timestamp:
        self.asked += 1
        return time(self.driver.now)

    def process(self, *destinations: Destination) -> Watching:
        """The next process."""
        return Watching(
            self.driver,
            *(each.routed() for each in destinations),
            store=self.store,
            states=self.states,
            now=self.now,
            start=NOW,
            checkpoint_seconds=0,
        )


async def test_changes_of_a_pause_before_the_first_position_come_after_it() -> None:
    source, destination = Source(), Destination()
    await source.states.write(desired(1, paused=True))
    async with source.process(destination).run() as watching:
        await watching.until_state(WatcherState.PAUSED)
        source.driver.oplog.append(change(2))
        resumed = desired(2)
        await source.states.write(resumed)
        watching.watcher.apply(resumed)
        await until(lambda: destination.handled == [2])


async def test_changes_after_a_crash_before_the_first_reply_come() -> None:
    source, destination = Source(), Destination()
    source.driver.refusals = [disconnected()] * 100
    async with source.process(destination).run() as watching:
        await until(lambda: watching.watcher.begins_somewhere)
        watching.running.cancel()
    source.driver.oplog.append(change(2))
    source.driver.refusals = []
    async with source.process(destination).run():
        await until(lambda: destination.handled == [2])
    assert source.asked == 1


async def test_a_store_that_fails_does_not_make_now_later() -> None:
    source, destination = Source(), Destination()
    source.store.failing = 1
    async with source.process(destination).run() as watching:
        await until(lambda: watching.watcher.status.counts.restarts == 1)
        source.driver.oplog.append(change(2))
        await until(lambda: destination.handled == [2])
    assert source.asked == 1


async def test_what_was_written_before_does_not_come() -> None:
    source, destination = Source(), Destination()
    async with source.process(destination).run() as watching:
        await watching.until_state(WatcherState.CAUGHT_UP)
    assert destination.handled == []


async def test_a_handler_that_is_added_begins_when_it_is_added_and_the_other_goes_on() -> None:
    source, audit, lake = Source(), Destination("audit"), Destination("lake")
    async with source.process(audit).run() as watching:
        await watching.until_state(WatcherState.CAUGHT_UP)
        source.driver.oplog.append(change(2))
        await until(lambda: audit.handled == [2])
    source.driver.refusals = [disconnected()] * 100
    async with source.process(audit, lake).run() as watching:
        await until(lambda: source.store.records["orders"].of("lake") is not None)
        watching.running.cancel()
    source.driver.oplog.append(change(3))
    source.driver.refusals = []
    async with source.process(audit, lake).run():
        await until(lambda: lake.handled == [3] and audit.handled == [2, 3])
    saved = source.store.records["orders"].subscriptions
    started = {name: each.position.started for name, each in saved.items()}
    assert started["audit"] is not None
    assert started["lake"] is not None
    assert started["audit"] < started["lake"]


async def test_a_move_of_long_ago_does_not_lead_a_new_handler_back() -> None:
    source, audit, lake = Source(), Destination("audit"), Destination("lake")
    source.driver.oplog += [change(2), change(3)]
    await source.states.write(desired(1, seek=2))
    async with source.process(audit).run():
        await until(lambda: audit.handled == [2, 3])
    async with source.process(audit, lake).run() as watching:
        await until(lambda: source.store.records["orders"].of("lake") is not None)
        await watching.until_state(WatcherState.CAUGHT_UP)
        source.driver.oplog.append(change(4))
        await until(lambda: 4 in lake.handled and 4 in audit.handled)
    assert (audit.handled, lake.handled) == ([2, 3, 4], [4])


async def test_a_position_that_was_reset_does_not_apply_the_last_move_again() -> None:
    source, audit = Source(), Destination("audit")
    source.driver.oplog += [change(2), change(3)]
    await source.states.write(desired(1, seek=2))
    async with source.process(audit).run():
        await until(lambda: audit.handled == [2, 3])
    await reset_position(source.store, source.states, "orders", datetime.now(UTC))
    async with source.process(audit).run() as watching:
        await watching.until_state(WatcherState.CAUGHT_UP)
    assert audit.handled == [2, 3]
