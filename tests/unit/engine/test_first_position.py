"""A scope that begins now begins at the time when that was said, whatever comes in between."""

import pytest
from bson.timestamp import Timestamp

from tailrace.engine import WatcherState
from tailrace.model.start import NOW
from tailrace.stores.memory import MemoryOrders
from tests.unit.engine.changes import change, time, until
from tests.unit.engine.scripted_driver import ScriptedDriver, disconnected
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.test_orders import order
from tests.unit.engine.watching import Destination, Watching

pytestmark = pytest.mark.anyio


class Source:
    """A scope that begins now, on a server whose last change is the first."""

    def __init__(self) -> None:
        self.driver = ScriptedDriver(change(1))
        self.store = ScriptedStore()
        self.orders = MemoryOrders()
        self.asked = 0

    async def now(self) -> Timestamp:
        self.asked += 1
        return time(self.driver.now)

    def process(self, destination: Destination) -> Watching:
        """The next process."""
        return Watching(
            self.driver,
            destination.routed(),
            store=self.store,
            orders=self.orders,
            now=self.now,
            start=NOW,
            checkpoint_seconds=0,
        )


async def test_changes_of_a_pause_before_the_first_position_come_after_it() -> None:
    source, destination = Source(), Destination()
    await source.orders.give(order(1, paused=True))
    async with source.process(destination).run() as watching:
        await watching.until_state(WatcherState.PAUSED)
        source.driver.oplog.append(change(2))
        resumed = order(2)
        await source.orders.give(resumed)
        watching.watcher.obey(resumed)
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
        await until(lambda: watching.watcher.status.restarts == 1)
        source.driver.oplog.append(change(2))
        await until(lambda: destination.handled == [2])
    assert source.asked == 1


async def test_what_was_written_before_does_not_come() -> None:
    source, destination = Source(), Destination()
    async with source.process(destination).run() as watching:
        await watching.until_state(WatcherState.CAUGHT_UP)
    assert destination.handled == []
