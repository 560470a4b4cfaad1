"""A stop finishes the calls that run and begins none; the next process repeats nothing."""

from collections import Counter
from typing import Any

import anyio
import pytest

from tailrace.engine import WatcherState
from tailrace.errors import CheckpointFenced, DestinationUnavailable
from tailrace.event import ChangeEvent
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tests.unit.engine.changes import change, changes, ddl, invalidate, number, settle, token, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import NEVER, Destination, Watching

HOT = [change(n, "hot" if n % 2 else n) for n in range(1, 400)]
"""Every second event belongs to one document."""


class Failing(Destination):
    """Its failures are its events' fault."""

    async def on_event(self, event: ChangeEvent) -> None:
        try:
            await super().on_event(event)
        except DestinationUnavailable as error:
            raise ValueError(f"event {number(event)}") from error


def handled_beyond(watching: Watching, handler: str) -> bool:
    """Whether the store has single events that a handler has after its position."""
    saved = watching.saved and watching.saved.of(handler)
    return bool(saved and saved.position.handled)


class Stubborn(Destination):
    """Its calls ignore their cancellation."""

    async def on_event(self, event: ChangeEvent) -> None:
        with anyio.CancelScope(shield=True):
            await super().on_event(event)


async def continued(
    watching: Watching, last: int, *destinations: Destination, **fields: Any
) -> None:
    """Lets the next process handle the rest; asserts that each handler got each event once."""
    for each in destinations:
        each.held = set()
    routed = watching.watcher.plan.routed
    following = Watching(watching.driver, *routed, store=watching.store, **fields)
    async with following.run():
        for each in destinations:
            await until(lambda each=each: len(each.handled) >= last)
        await following.until_state(WatcherState.CAUGHT_UP)
    for each in destinations:
        assert Counter(each.handled) == Counter(range(1, last + 1)), each.name


@pytest.mark.parametrize("lanes", [1, 64])
async def test_calls_that_run_are_finished_and_none_begins(lanes: int) -> None:
    """With one hot document too: its events wait, and events of other documents are handled."""
    audit = Destination()
    audit.held = {5, 11}
    async with Watching(ScriptedDriver(*HOT), audit.routed(), lanes=lanes).run() as watching:
        await until(lambda: 5 in audit.begun)
        await settle()
        begun = list(audit.begun)
        watching.stop.set()
        await watching.until_state(WatcherState.DRAINING)
        await settle()
        audit.held = set()
    assert audit.begun == begun
    assert sorted(audit.handled) == sorted(begun)
    assert watching.budget.used == 0
    await continued(watching, 399, audit, lanes=lanes)


async def test_a_last_save_that_fails_for_a_moment_is_tried_again() -> None:
    """As while the store elects its primary. No later run of the process would save it."""
    audit = Destination()
    watching = Watching(ScriptedDriver(*changes(1, 10)), audit.routed())
    async with watching.run():
        await until(lambda: len(audit.handled) == 9)
        watching.store.failing = 2
    assert watching.watcher.status.unsaved == ""
    assert not [each for each in watching.logs if each["event"] == "checkpoint.not_saved"]
    await continued(watching, 9, audit)


async def test_a_halt_saves_what_the_store_did_not_take_at_the_end_of_the_run() -> None:
    audit = Failing()
    audit.failures[9] = 1
    halt = FailurePolicy(attempts=1, halt=True)
    watching = Watching(ScriptedDriver(*changes(1, 10)), audit.routed(failure=halt, concurrency=1))
    audit.held = {9}
    async with watching.run():
        await until(lambda: 9 in audit.begun)
        watching.store.failing = 1
        audit.held = set()
        await watching.until_state(WatcherState.HALTED)
    assert watching.watcher.status.unsaved == ""
    await continued(watching, 9, audit)


async def test_a_last_save_is_not_tried_again_where_another_process_has_saved() -> None:
    audit = Destination()
    watching = Watching(ScriptedDriver(*changes(1, 10)), audit.routed())
    async with watching.run():
        await until(lambda: len(audit.handled) == 9)
        watching.store.failing, watching.store.error = 9, CheckpointFenced("another process")
        before = len(watching.store.attempts)
    assert len(watching.store.attempts) == before + 1
    assert watching.watcher.status.unsaved == "another process"


async def test_every_handler_ends_where_it_is() -> None:
    """The quick one is at event 7, the slow one at event 1, and the batches wait for more."""
    quick, slow, batches = Destination("quick"), Destination("slow"), Destination("batches")
    slow.held, quick.held = {1}, {7}
    watching = Watching(
        ScriptedDriver(*changes(1, 60)),
        quick.routed(concurrency=1),
        slow.routed(concurrency=1),
        batches.routed_by_batch(linger_seconds=3600),
    )
    async with watching.run():
        await until(lambda: quick.begun[-1:] == [7])
        watching.stop.set()
        await watching.until_state(WatcherState.DRAINING)
        await settle()
        slow.held, quick.held = set(), set()
    assert (quick.handled, slow.handled, batches.begun) == (list(range(1, 8)), [1], [])
    assert watching.position.event_token is None, "nothing is handled by all of them"
    following = Watching(
        watching.driver,
        quick.routed(),
        slow.routed(),
        batches.routed_by_batch(),
        store=watching.store,
    )
    async with following.run():
        for each in (quick, slow, batches):
            await until(lambda each=each: len(each.handled) == 59)
    for each in (quick, slow, batches):
        assert sorted(each.handled) == list(range(1, 60)), each.name


async def test_a_sequence_that_failed_is_not_tried_again_event_by_event() -> None:
    """After the last attempt each event is tried alone: a stop ends that between two events."""
    audit = Failing()
    policy = FailurePolicy(attempts=1)
    audit.failures[1] = 1
    audit.held = {2}
    batches = audit.routed_by_batch(10, failure=policy)
    async with Watching(ScriptedDriver(*changes(1, 10), batch_size=9), batches).run() as watching:
        await until(lambda: audit.begun == [1, 1, 2])
        watching.stop.set()
        await settle()
        audit.held = set()
    assert audit.handled == [1, 2]
    await continued(watching, 9, audit)


async def test_an_event_that_waits_for_its_next_attempt_is_not_tried_again() -> None:
    audit = Failing()
    audit.failures[3] = 1
    policy = FailurePolicy(attempts=5, backoff=NEVER)
    watching = Watching(ScriptedDriver(*changes(1, 10)), audit.routed(failure=policy))
    async with watching.run():
        await until(lambda: len(audit.handled) == 8)
    assert audit.begun.count(3) == 1
    await continued(watching, 9, audit)


async def test_a_stop_in_the_drain_after_an_invalidate_repeats_and_loses_nothing() -> None:
    audit = Destination()
    audit.held = {2}
    events = [*changes(1, 8), ddl(8), invalidate(9), *changes(10, 13)]
    async with Watching(ScriptedDriver(*events, batch_size=20), audit.routed()).run() as watching:
        await until(lambda: 2 in audit.begun)
        await watching.until_state(WatcherState.DRAINING)
        await until(lambda: 7 in audit.handled)
        watching.stop.set()
        await settle()
        audit.held = set()
    assert 8 not in audit.begun
    assert watching.position.event_token == token(7)
    await continued(watching, 12, audit)


async def test_a_handler_that_gives_up_halts_alone() -> None:
    """After a restart it continues there, and no other handler gets an event again."""
    fails, slow = Failing("fails"), Destination("slow")
    fails.failures[1] = 1
    slow.held = {1}
    halt = FailurePolicy(attempts=1, halt=True, backoff=Backoff(0, 0))
    watching = Watching(
        ScriptedDriver(*changes(1, 30)),
        fails.routed(failure=halt),
        slow.routed(concurrency=1),
    )
    async with watching.run():
        await until(lambda: slow.begun == [1] and "fails" in watching.watcher.apart)
        await until(lambda: watching.watcher.apart["fails"].state is WatcherState.HALTED)
        await settle()
        slow.held = set()
        await until(lambda: 29 in slow.handled)
    assert slow.handled == list(range(1, 30))
    await continued(watching, 29, fails, slow)


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_stop_by_force_repeats_nothing_of_a_handler_that_ends_its_calls_alone(
    stubborn: bool,
) -> None:
    """It has left the others, but has not begun its own course: one call still runs."""
    quick, slow = Destination("quick"), Stubborn("slow") if stubborn else Destination("slow")
    slow.held = {1}
    watching = Watching(
        ScriptedDriver(*changes(1, 30), batch_size=3),
        quick.routed(),
        slow.routed(concurrency=2),
        budget=4 * len(changes(1, 2)[0]) * 40,
    )
    async with watching.run():
        await until(lambda: "slow" in watching.watcher.apart and len(slow.handled) > 1)
        watching.running.cancel()
        await settle()
        saved = handled_beyond(watching, "slow")
        slow.held = set()
    assert saved, "before the call has ended"
    await continued(watching, 29, quick, slow)
