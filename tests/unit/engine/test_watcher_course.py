"""A watcher's ordinary course: start, follow, stop, continue."""

from typing import Any

import anyio
import pytest

from tailrace.engine import Routed, WatcherState
from tailrace.errors import ScopeHalted
from tailrace.model import PositionKind, StartPoint
from tailrace.stream import ChangeStreamOptions, fingerprint
from tests.unit.engine.changes import change, changes, ddl, settle, time, token, until
from tests.unit.engine.scripted_driver import AFTER, ScriptedDriver, resumable
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import SCOPE, Destination, Watching


async def test_every_event_goes_to_every_handler_and_is_remembered() -> None:
    audit, lake = Destination("audit"), Destination("lake")
    driver = ScriptedDriver(*changes(1, 20), ddl(20), *changes(21, 30))
    async with Watching(driver, audit.routed(), lake.routed_by_batch()).run() as watching:
        await watching.until_state(WatcherState.CAUGHT_UP)
    assert sorted(audit.handled) == list(range(1, 30))
    assert lake.handled == list(range(1, 30))
    saved = watching.saved
    assert saved is not None
    assert saved.position.event_token == token(29)
    assert saved.position.high_water in (token(29), token(29, AFTER))
    assert (saved.cluster, saved.epoch) == ("rs0/5f3a", 1)
    assert saved.fingerprint == fingerprint(SCOPE, ChangeStreamOptions())
    assert (watching.budget.used, driver.sessions) == (0, 0)
    assert watching.counted("events_total", operation="insert") == 28
    assert watching.counted("events_total", operation="drop") == 1
    # Where it began, and where it ended.
    assert watching.counted("checkpoint_saves_total", outcome="ok") == 2


async def calls_of(*others: Routed, **fields: Any) -> list[int]:
    """Lengths of the sequences that a handler gets from one reply of 150 events."""
    audit = Destination()
    driver = ScriptedDriver(*changes(1, 151), batch_size=150)
    async with Watching(driver, audit.routed_by_batch(**fields), *others).run() as watching:
        await watching.until_state(WatcherState.CAUGHT_UP)
        await until(lambda: len(audit.handled) == 150)
    assert audit.handled == list(range(1, 151))
    return audit.calls


@pytest.mark.parametrize(
    ("batch_size", "calls"), [(1000, [150]), (150, [150]), (100, [100, 50]), (40, [40, 24] * 2)]
)
async def test_calls_of_sequences_are_as_large_as_the_handler_allows(
    batch_size: int, calls: list[int]
) -> None:
    assert (await calls_of(batch_size=batch_size))[: len(calls)] == calls


async def test_beside_workers_of_single_events_a_handler_of_sequences_gets_their_pieces() -> None:
    """They take 64 events at once; larger pieces would repeat more events after a crash."""
    assert await calls_of(Destination("other").routed(), batch_size=100) == [64, 86]


async def test_an_idle_scope_is_remembered_too() -> None:
    """Otherwise its token would age out of the oplog while nothing happens."""
    watching = Watching(
        ScriptedDriver(change(1)), Destination().routed(), start=StartPoint(), checkpoint_seconds=0
    )
    async with watching.run():
        await until(lambda: watching.saved is not None)
        first = watching.saved
        assert first is not None
        assert (first.position.kind, first.position.event_token) == (PositionKind.IDLE, None)
        assert first.position.high_water == token(1, AFTER)


async def test_a_start_time_that_nothing_has_come_from_is_not_forgotten() -> None:
    """The first run ends before it has a token; the next run starts at the same time."""
    driver, audit = ScriptedDriver(*changes(1, 6)), Destination()
    driver.refusals = [resumable(), resumable()]
    watching = Watching(driver, audit.routed(), start=StartPoint(at_operation_time=time(4)))
    async with watching.run():
        await until(lambda: audit.handled == [4, 5])
    assert driver.start_options == ["at 4", "at 4", "at 4"]


async def test_a_start_that_is_stopped_while_the_server_does_not_answer_ends() -> None:
    driver = ScriptedDriver(change(1))
    driver.hanging = anyio.Event()
    async with Watching(driver, Destination().routed()).run() as watching:
        await until(lambda: len(driver.starts) == 1)
        await settle()
        assert watching.watcher.status.state is WatcherState.STARTING
    assert watching.states == ["stopped"]
    assert driver.sessions == 0


async def test_a_stop_does_not_cancel_the_read() -> None:
    """A cancelled read has lost its reply (field notes, 25)."""
    driver = ScriptedDriver(*changes(1, 6))
    async with Watching(driver, Destination().routed()).run() as watching:
        await watching.until_state(WatcherState.CAUGHT_UP)
    assert driver.cancelled_reads == 0
    assert all(cursor.killed for cursor in driver.cursors)


async def test_an_unexpected_error_of_the_store_is_a_fault_like_any_other() -> None:
    store = ScriptedStore()
    store.failing_loads = [ZeroDivisionError("a bug"), ScopeHalted("enough")]
    watching = Watching(ScriptedDriver(change(1)), store=store)
    await watching.to_the_end()
    assert watching.states == ["backing_off", "starting", "halted"]
    assert watching.counted("watcher_restarts_total", reason="internal") == 1
