"""A scope does what operators want: it pauses, continues and moves, without loss or repetition."""

from dataclasses import replace
from datetime import UTC, datetime

import anyio
import pytest
from structlog.testing import capture_logs

from tailrace.engine import WatcherState, watch_desired_states
from tailrace.errors import CheckpointError
from tailrace.model import Checkpoint, Position, PositionKind
from tailrace.model.desired_state import DesiredState, DesiredStateTable
from tailrace.stores.memory import MemoryDesiredStates
from tests.unit.engine.changes import changes, time, token, until
from tests.unit.engine.scripted_driver import ScriptedDriver, disconnected
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import NEVER, Destination, Watching

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


def desired(generation: int = 1, *, paused: bool = False, seek: int | None = None) -> DesiredState:
    """A desired state that pauses the scope, or moves it to the time of an event."""
    position = None if seek is None else Position(PositionKind.IDLE, None, None, time(seek))
    moved = generation if seek is not None else 0
    return DesiredState("orders", generation, paused, "ann", AT, position, moved)


def watching(destination: Destination, *, last: int = 9, **fields: object) -> Watching:
    driver = ScriptedDriver(*changes(1, last + 1))
    fields = {"checkpoint_seconds": 0, **fields}
    return Watching(driver, destination.routed(concurrency=1), **fields)  # type: ignore[arg-type]


def following(before: Watching, destination: Destination) -> Watching:
    """The next process."""
    return Watching(
        before.driver,
        destination.routed(concurrency=1),
        store=before.store,
        states=before.runtime.desired_states,
    )


async def test_a_pause_drains_saves_and_lasts_until_it_is_ended() -> None:
    """Also over a restart, and whoever follows the scope then."""
    audit = Destination()
    audit.held = {5}
    one = watching(audit)
    states = one.runtime.desired_states
    async with one.run():
        await until(lambda: 5 in audit.begun)
        await states.write(desired(paused=True))
        one.watcher.apply(desired(paused=True))
        await one.until_state(WatcherState.DRAINING)
        audit.held = set()
        await one.until_state(WatcherState.PAUSED)
        assert audit.handled == [1, 2, 3, 4, 5]
        assert one.position.event_token == token(5)
        assert "paused by ann" in one.reason
        assert "tailrace scopes resume orders" in one.reason
    async with following(one, audit).run() as two:
        await two.until_state(WatcherState.PAUSED)
        assert audit.begun == [1, 2, 3, 4, 5]
        await states.write(desired(2))
        two.watcher.apply(desired(2))
        await until(lambda: audit.handled == [*range(1, 10)])
    assert not {"halted", "backing_off"} & {*one.states, *two.states}


async def test_a_pause_saves_what_the_store_did_not_take_at_its_begin() -> None:
    """It may last for days, and end with the process."""
    audit = Destination()
    one = watching(audit, checkpoint_seconds=3600)
    states = one.runtime.desired_states
    async with one.run():
        await until(lambda: len(audit.handled) == 9)
        one.store.failing = 3
        await states.write(desired(paused=True))
        one.watcher.apply(desired(paused=True))
        await one.until_state(WatcherState.PAUSED)
        assert one.position.event_token == token(9)
        assert one.watcher.status.unsaved == ""
    async with following(one, audit).run() as two:
        await states.write(desired(2))
        two.watcher.apply(desired(2))
        await two.until_state(WatcherState.CAUGHT_UP)
    assert audit.begun == [*range(1, 10)]


@pytest.mark.parametrize("trouble", ["server", "destination"])
async def test_a_pause_also_ends_an_outage(trouble: str) -> None:
    audit = Destination()
    one = watching(audit, backoff=NEVER)
    if trouble == "server":
        one.driver.refusals = [disconnected()] * 9
    else:
        audit.failures[3] = 10_000
    async with one.run():
        waiting = WatcherState.BACKING_OFF if trouble == "server" else WatcherState.WAITING
        await one.until_state(waiting)
        await one.runtime.desired_states.write(desired(paused=True))
        one.watcher.apply(desired(paused=True))
        await one.until_state(WatcherState.PAUSED)


async def test_what_another_process_has_stored_is_applied() -> None:
    audit, states = Destination(), MemoryDesiredStates()
    one = watching(audit, states=states)
    async with one.run(), anyio.create_task_group() as tasks:
        tasks.start_soon(watch_desired_states, states, one.watcher.apply, 0.01)
        await until(lambda: len(audit.handled) == 9)
        await states.write(desired(paused=True))
        await one.until_state(WatcherState.PAUSED)
        await states.write(desired(2))
        await one.until_state(WatcherState.CAUGHT_UP)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("paused", [False, True])
async def test_a_scope_moves_back_without_halting_and_every_handler_gets_it_again(
    paused: bool,
) -> None:
    audit = Destination()
    async with watching(audit).run() as one:
        await until(lambda: len(audit.handled) == 9)
        await one.until_state(WatcherState.CAUGHT_UP)
        moved = desired(paused=paused, seek=4)
        await one.runtime.desired_states.write(moved)
        one.watcher.apply(moved)
        await until(lambda: one.watcher.claim.observed_generation == 1)
        if paused:
            await one.until_state(WatcherState.PAUSED)
            assert len(audit.handled) == 9
            last = DesiredState("orders", 2, False, "ann", AT, moved.seek, 1)
            await one.runtime.desired_states.write(last)
            one.watcher.apply(last)
        await until(lambda: len(audit.handled) == 15)
    assert audit.handled == [*range(1, 10), *range(4, 10)]
    assert "halted" not in one.states
    former = await one.runtime.desired_states.positions("orders")
    before = next(each for each in former if not each.observed_generation)
    assert before.position.event_token == token(9)
    assert one.position.started == time(1), "what came before the move still came"
    assert await one.store.gaps("orders") == []


async def test_changes_that_a_move_skips_are_recorded_as_a_gap() -> None:
    audit = Destination()
    audit.held = {3}
    async with watching(audit).run() as one:
        await until(lambda: 3 in audit.begun)
        await one.runtime.desired_states.write(desired(seek=8))
        one.watcher.apply(desired(seek=8))
        await one.until_state(WatcherState.DRAINING)
        audit.held = set()
        await until(lambda: audit.handled == [1, 2, 3, 8, 9])
    (gap,) = await one.store.gaps("orders")
    assert (gap.since, gap.until, gap.policy) == (time(3), time(8), "seek")


class Crashed(BaseException):
    """The process is gone."""


class Crashing(MemoryDesiredStates):
    """Its process ends in, or right after, the note of a former position."""

    def __init__(self) -> None:
        super().__init__()
        self.crash: str = ""

    async def note(self, former: Checkpoint) -> None:
        if self.crash == "before the note":
            raise Crashed
        await super().note(former)
        if self.crash == "after the note":
            raise Crashed


class CrashingStore(ScriptedStore):
    crash = ""

    async def save(self, checkpoint: Checkpoint) -> None:
        if checkpoint.observed_generation and self.crash == "before the save":
            raise Crashed
        await super().save(checkpoint)
        if checkpoint.observed_generation and self.crash == "after the save":
            raise Crashed


STEPS = ["before the note", "after the note", "before the save", "after the save"]


@pytest.mark.parametrize("step", STEPS)
async def test_a_crash_between_two_steps_of_a_move_neither_loses_nor_repeats_it(step: str) -> None:
    audit, states, store = Destination(), Crashing(), CrashingStore()
    async with watching(audit, states=states, store=store).run() as one:
        await until(lambda: len(audit.handled) == 9)
        await one.until_state(WatcherState.CAUGHT_UP)
    await states.write(desired(seek=7))
    states.crash = store.crash = step
    two = following(one, audit)
    with pytest.raises((Crashed, BaseExceptionGroup)):
        await two.to_the_end()
    states.crash = store.crash = ""
    for expected in (12, 12):
        async with following(one, audit).run() as three:
            await until(lambda expected=expected: len(audit.handled) == expected)
            await three.until_state(WatcherState.CAUGHT_UP)
    assert audit.handled == [*range(1, 10), 7, 8, 9]


@pytest.mark.parametrize("failing", ["save refused", "save without an answer", "note"])
async def test_a_store_that_fails_delays_a_move(failing: str) -> None:
    audit, store = Destination(), ScriptedStore()
    one = watching(audit, store=store)

    async def fails(former: Checkpoint) -> None:
        one.runtime.desired_states.note = noted  # type: ignore[method-assign]
        raise CheckpointError("the disk is full")

    async with one.run():
        await until(lambda: len(audit.handled) == 9)
        await one.until_state(WatcherState.CAUGHT_UP)
        await one.runtime.desired_states.write(desired(seek=7))
        noted = one.runtime.desired_states.note
        if failing == "note":
            one.runtime.desired_states.note = fails  # type: ignore[method-assign]
        store.failing, store.lying = int(failing == "save refused"), int("without" in failing)
        one.watcher.apply(desired(seek=7))
        await until(lambda: len(audit.handled) == 12)
        await one.until_state(WatcherState.CAUGHT_UP)
    assert audit.handled == [*range(1, 10), 7, 8, 9]
    assert "halted" not in one.states


async def test_an_unreadable_desired_state_is_told_once_and_the_others_are_applied() -> None:
    class Damaged(MemoryDesiredStates):
        rounds = 0

        async def list(self) -> DesiredStateTable:
            self.rounds += 1
            return replace(await super().list(), unreadable={"users": "it is not JSON"})

    states, received = Damaged(), list[DesiredState]()
    await states.write(desired(paused=True))
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch_desired_states, states, received.append, 0)
            await until(lambda: states.rounds > 3)
            tasks.cancel_scope.cancel()
    assert received[0] == desired(paused=True)
    told = [(log["event"], log["scope"], log["error"]) for log in logs]
    assert told == [("desired_state.unreadable", "users", "it is not JSON")]
