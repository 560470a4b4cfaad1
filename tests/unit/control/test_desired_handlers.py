"""Orders for one handler of a scope: it pauses, moves and continues alone, and so do the others."""

from dataclasses import replace
from typing import Any

import pytest

from tailrace.control.actions.pause import PAUSE, RESUME
from tailrace.control.actions.positions import POSITIONS
from tailrace.control.actions.restart import RESTART
from tailrace.control.actions.seek import SEEK, SeekBody
from tailrace.control.actions.snapshot import SNAPSHOT, SnapshotBody
from tailrace.control.bodies import ApplyBody, HandlerQuery
from tailrace.control.control import Control
from tailrace.control.desired_state import store_desired_state
from tailrace.control.outcome import ActionRefused
from tailrace.control.server_positions import moment
from tailrace.engine import WatcherState
from tailrace.model.desired_state import DesiredHandler
from tailrace.model.snapshot import SnapshotRequest
from tailrace.stores.memory import MemoryDesiredStates
from tests.unit.control.controlling import ask, control_of
from tests.unit.engine.changes import change, changes, time, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Destination, Watching, running

BY = "ann on laptop at 127.0.0.1"
ALL, INDEX = ApplyBody(), ApplyBody(handler="index")
BACK = SeekBody(at=moment(time(4)), handler="index")


def controlled(audit: Destination, index: Destination, **fields: Any) -> tuple[Watching, Control]:
    """A scope with two handlers."""
    driver = ScriptedDriver(*changes(1, 10))
    handlers = [each.routed(concurrency=1) for each in (audit, index)]
    one = Watching(driver, *handlers, checkpoint_seconds=0, **fields)
    one.runtime.clock.answered(time(9))
    return one, control_of(one)


async def test_a_handler_is_paused_and_moved_and_resumed_while_the_other_goes_on() -> None:
    audit, index = Destination("audit"), Destination("index")
    one, control = controlled(audit, index)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == len(index.handled) == 9)
        paused = await ask(control, PAUSE, "orders", INDEX, BY)
        assert paused.message == "handler 'index' of scope 'orders' is paused"
        assert paused.after == "paused"
        assert one.watcher.status.state is not WatcherState.PAUSED
        again = await ask(control, PAUSE, "orders", INDEX, BY)
        assert again.message == "handler 'index' of scope 'orders' is paused already"
        one.driver.oplog.append(change(10))
        await until(lambda: audit.handled[-1] == 10)
        assert index.handled == [*range(1, 10)]
        moved = await ask(control, SEEK, "orders", BACK, BY)
        message = f"changes from {moment(time(4))} to {moment(time(9))} come again, to index"
        assert moved.message == f"handler 'index' of scope 'orders' is moved: {message}"
        found = (await ask(control, POSITIONS, "orders", HandlerQuery()))["positions"]
        now = {tuple(each["handlers"]): each["at"] for each in found if each["current"]}
        assert now[("index",)] == moment(time(4))
        assert now[("audit",)] == moment(time(10))
        own = (await ask(control, POSITIONS, "orders", HandlerQuery(handler="index")))["positions"]
        assert own[0]["at"] == moment(time(4))
        assert all(each["handlers"] == ["index"] for each in own)
        resumed = await ask(control, RESUME, "orders", INDEX, BY)
        assert resumed.message == "handler 'index' of scope 'orders' is resumed"
        await until(lambda: index.handled == [*range(1, 10), *range(4, 11)])
        undone = await ask(control, SEEK, "orders", SeekBody(undo=True, handler="index"), BY)
        assert undone.message.startswith("handler 'index' of scope 'orders' is moved: ")
    assert audit.handled == [*range(1, 11)]


async def test_a_dry_run_says_what_would_come_to_that_handler() -> None:
    audit, index = Destination("audit"), Destination("index")
    index.held = {6}
    one, control = controlled(audit, index)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9 and index.begun[-1] == 6)
        tried = await ask(control, SEEK, "orders", BACK.model_copy(update={"dry_run": True}), BY)
        message = f"changes from {moment(time(4))} to {moment(time(5))} come again, to index"
        assert message in tried.message
        assert tried.details["handlers"] == ["index"]
        assert await one.runtime.desired_states.load("orders") is None
        index.held = set()


async def test_a_move_of_the_scope_says_what_it_means_for_handlers_that_stand_apart() -> None:
    audit, index = Destination("audit"), Destination("index")
    _, control = controlled(audit, index)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == len(index.handled) == 9)
        await ask(control, PAUSE, "orders", INDEX, BY)
        await ask(control, SEEK, "orders", BACK, BY)
        tried = await ask(control, SEEK, "orders", SeekBody(at=moment(time(6)), dry_run=True), BY)
        again = f"changes from {moment(time(6))} to {moment(time(9))} come again, to audit"
        assert again in tried.message
        skipped = f"changes from {moment(time(4))} to {moment(time(6))} do not come again"
        assert skipped in tried.message
        assert [move["handlers"] for move in tried.details["moves"]] == [["audit"], ["index"]]
        moved = await ask(control, SEEK, "orders", SeekBody(at=moment(time(6))), BY)
        assert again in moved.message
        assert skipped in moved.message
        await ask(control, RESUME, "orders", ALL, BY)
        await until(lambda: index.handled == audit.handled == [*range(1, 10), *range(6, 10)])


async def test_the_resume_of_a_scope_ends_the_pauses_of_its_handlers() -> None:
    audit, index = Destination("audit"), Destination("index")
    one, control = controlled(audit, index)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == len(index.handled) == 9)
        await ask(control, PAUSE, "orders", INDEX, BY)
        await ask(control, PAUSE, "orders", ALL, BY)
        with pytest.raises(ActionRefused) as error:
            await ask(control, RESUME, "orders", INDEX, BY)
        assert error.value.status == 409
        assert str(error.value).startswith("scope 'orders' is paused as a whole, by ann ")
        assert "'tailrace scopes resume orders' continues it, with all its handlers" in str(
            error.value
        )
        one.driver.oplog.append(change(10))
        await ask(control, RESUME, "orders", ALL, BY)
        await until(lambda: audit.handled == index.handled == [*range(1, 11)])


@pytest.mark.parametrize("action", ["pause", "resume", "restart", "seek", "positions", "snapshot"])
async def test_a_handler_that_the_scope_does_not_have_is_told_with_those_it_has(
    action: str,
) -> None:
    _, control = controlled(Destination("audit"), Destination("index"))
    odd = ApplyBody(handler="odd")
    calls = {
        "pause": lambda: ask(control, PAUSE, "orders", odd, BY),
        "resume": lambda: ask(control, RESUME, "orders", odd, BY),
        "restart": lambda: ask(control, RESTART, "orders", odd, BY),
        "seek": lambda: ask(control, SEEK, "orders", SeekBody(undo=True, handler="odd"), BY),
        "positions": lambda: ask(control, POSITIONS, "orders", HandlerQuery(handler="odd")),
        "snapshot": lambda: ask(control, SNAPSHOT, "orders", SnapshotBody(handler="odd"), BY),
    }
    with pytest.raises(ActionRefused) as error:
        await calls[action]()  # type: ignore[operator]
    assert error.value.status == 404
    assert str(error.value) == "scope 'orders' has no handler 'odd'; it has: audit, index"


async def test_a_snapshot_of_the_scope_is_not_paused_for_one_handler() -> None:
    one, control = controlled(Destination("audit"), Destination("index"))
    one.watcher.status.enter(WatcherState.CAUGHT_UP)
    with pytest.raises(ActionRefused, match="'tailrace snapshot pause orders' is for all") as error:
        await ask(control, SNAPSHOT, "orders", SnapshotBody(action="pause", handler="index"), BY)
    assert error.value.status == 409


async def test_a_change_for_all_replaces_those_for_single_handlers() -> None:
    states = MemoryDesiredStates()
    at = {"seek": None, "fingerprint": "c0ffee"}
    first = (await store_desired_state(states, "orders", BY, at, "index")).desired
    assert first.handlers == {
        "index": DesiredHandler(seek_generation=first.generation, fingerprint="c0ffee"),
    }
    await store_desired_state(states, "orders", BY, {"paused": True}, "audit")
    second = (await store_desired_state(states, "orders", BY, at)).desired
    assert second.handlers == {"audit": DesiredHandler(paused=True)}
    assert second.of("index").seek_generation == second.seek_generation == second.generation
    third = await store_desired_state(states, "orders", BY, {"paused": False})
    assert (third.desired.handlers, third.repeated) == ({}, False)
    assert (await store_desired_state(states, "orders", BY, {"paused": False})).repeated
    assert (await store_desired_state(states, "orders", BY, {"paused": True})).desired.paused
    assert (await store_desired_state(states, "orders", BY, {"paused": True}, "index")).repeated


async def test_what_is_wanted_of_a_snapshot_tells_since_when_it_is_wanted() -> None:
    """For all or for one, however often it is paused: who has a later one does not lack it."""
    states, since = MemoryDesiredStates(), []
    first, other = SnapshotRequest("5f3a", new=True), SnapshotRequest("c0de", new=True)
    for wanted, handler in (
        (first, None),
        (replace(first, paused=True), "audit"),
        (first, None),
        (other, "audit"),
        (replace(other, paused=True), "audit"),
    ):
        changes = {"snapshot": wanted}
        state = (await store_desired_state(states, "orders", "ann", changes, handler)).desired
        snapshot = state.of(handler or "").snapshot
        assert snapshot is not None
        since.append(snapshot.since)
    assert since == [since[0]] * 3 + [state.generation - 1] * 2
