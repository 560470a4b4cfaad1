"""The actions of a process in each state of a scope, twice at once, and with a store that fails."""

import json
from dataclasses import replace
from typing import Any

import anyio
import pytest

from tailrace.control.actions.dead_letters import DISCARD_ONE, REPLAY_ONE, LetterBody
from tailrace.control.actions.pause import PAUSE, RESUME
from tailrace.control.actions.positions import POSITIONS
from tailrace.control.actions.replay import REPLAY, ReplayBody
from tailrace.control.actions.restart import RESTART
from tailrace.control.actions.seek import SEEK, SeekBody
from tailrace.control.actions.skip import SKIP, SkipBody
from tailrace.control.actions.snapshot import SNAPSHOT, SnapshotBody
from tailrace.control.bodies import ApplyBody, HandlerQuery
from tailrace.control.control import Control
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.server_positions import moment
from tailrace.engine import WatcherState
from tailrace.engine.held_lease import ObservedLease
from tailrace.errors import CheckpointError
from tailrace.model import Checkpoint, Scope
from tailrace.model.desired_state import DesiredState
from tailrace.stores.memory import MemoryDeadLetters, MemoryDesiredStates
from tests.contract.stores import letter
from tests.unit.control.controlling import ask, control_of
from tests.unit.engine.changes import change, changes, time, token, until
from tests.unit.engine.scripted_driver import ScriptedDriver, refused
from tests.unit.engine.watching import Destination, Watching, running

BY = "ann on laptop at 127.0.0.1"
ALL = ApplyBody()
BACK = SeekBody(at=moment(time(4)))


def controlled(
    destination: Destination | None = None, states: MemoryDesiredStates | None = None, **fields: Any
) -> tuple[Watching, Control]:
    handler = (destination or Destination()).routed(concurrency=1)
    fields |= {"checkpoint_seconds": 0}
    one = Watching(ScriptedDriver(*changes(1, 10)), handler, states=states, **fields)
    one.runtime.clock.answered(time(9))
    return one, control_of(one)


async def outcome(control: Control, action: str) -> Done | int:
    """What was done, or the status of the refusal."""
    calls = {
        "pause": lambda: ask(control, PAUSE, "orders", ALL, BY),
        "resume": lambda: ask(control, RESUME, "orders", ALL, BY),
        "seek": lambda: ask(control, SEEK, "orders", BACK, BY),
        "restart": lambda: ask(control, RESTART, "orders", ALL, BY),
        "snapshot": lambda: ask(control, SNAPSHOT, "orders", SnapshotBody(), BY),
    }
    try:
        return await calls[action]()
    except ActionRefused as error:
        return error.status if "\n" not in str(error) else 500


async def test_a_scope_is_paused_moved_and_resumed() -> None:
    audit = Destination()
    one, control = controlled(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        await one.until_state(WatcherState.CAUGHT_UP)
        assert (
            await ask(control, RESUME, "orders", ALL, BY)
        ).message == "scope 'orders' was not paused"
        paused = await ask(control, PAUSE, "orders", ALL, BY)
        assert paused.message == "scope 'orders' is paused"
        assert (paused.before, paused.after) == ("caught_up", "paused")
        assert (
            await ask(control, PAUSE, "orders", ALL, BY)
        ).message == "scope 'orders' is paused already"
        moved = await ask(control, SEEK, "orders", BACK, BY)
        message = f"changes from {moment(time(4))} to {moment(time(9))} come again, to audit"
        assert moved.message == f"scope 'orders' is moved: {message}"
        assert one.watcher.status.state is WatcherState.PAUSED
        resumed = await ask(control, RESUME, "orders", ALL, BY)
        assert resumed.message == "scope 'orders' is resumed"
        await until(lambda: len(audit.handled) == 15)
        assert (
            await ask(control, RESUME, "orders", ALL, BY)
        ).message == "scope 'orders' was not paused"
    assert audit.handled == [*range(1, 10), *range(4, 10)]


async def test_a_move_is_undone_and_a_dry_run_changes_nothing() -> None:
    audit = Destination()
    one, control = controlled(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        await one.until_state(WatcherState.CAUGHT_UP)
        await until(lambda: one.saved and one.saved.position.cluster_time == time(9))
        with pytest.raises(ActionRefused, match="there is none to undo"):
            await ask(control, SEEK, "orders", SeekBody(undo=True), BY)
        tried = await ask(control, SEEK, "orders", BACK.model_copy(update={"dry_run": True}), BY)
        assert tried.message.endswith("Dry run: nothing was changed")
        assert (tried.details["direction"], tried.details["seconds"]) == ("back", 5)
        assert tried.details["handlers"] == ["audit"]
        assert await one.runtime.desired_states.load("orders") is None
        audit.held = {5}
        await ask(control, SEEK, "orders", BACK, BY)
        await until(lambda: audit.begun[-1] == 5)
        tried = await ask(control, SEEK, "orders", SeekBody(undo=True, dry_run=True), BY)
        assert f"to {moment(time(9))} do not come again: they came before" in tried.message
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, control, SEEK, "orders", SeekBody(undo=True), BY)
            await one.until_state(WatcherState.DRAINING)
            audit.held = set()
        await one.until_state(WatcherState.CAUGHT_UP)
        assert audit.handled == [*range(1, 10), 4, 5]
        assert await one.store.gaps("orders") == []
        found = json.loads(json.dumps(await ask(control, POSITIONS, "orders", HandlerQuery())))[
            "positions"
        ]
        assert found[0]["current"]
        again = next(each for each in found if each["at"] == moment(time(4)))
        await ask(control, SEEK, "orders", SeekBody(token=again["token"]), BY)
        await until(lambda: len(audit.handled) == 17)


async def test_a_change_says_that_it_is_stored_until_it_has_its_effect() -> None:
    """And a script that waits, or looks at the generations, sees when it has."""
    audit = Destination()
    one, control = controlled(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        await one.until_state(WatcherState.CAUGHT_UP)
        audit.held = {50}
        one.driver.oplog.append(change(50))
        await until(lambda: 50 in audit.begun)
        dry = await ask(control, SEEK, "orders", BACK.model_copy(update={"dry_run": True}), BY)
        assert "and so do those that running handler calls end until then" in dry.message
        moved = await ask(control, SEEK, "orders", BACK.model_copy(update={"wait": 0.0}), BY)
        assert moved.message.startswith("scope 'orders': stored; it is ")
        assert not moved.details["effective"]
        first = moved.details["generation"]
        assert one.watcher.generations == {"generation": first, "observed_generation": first - 1}
        waiting = list[Done]()

        async def again() -> None:
            body = BACK.model_copy(update={"wait": 300.0})
            waiting.append(await ask(control, SEEK, "orders", body, BY))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(again)
            await until(lambda: one.watcher.generations["generation"] == first + 1)
            audit.held = set()
        (done,) = waiting
        assert done.details["effective"]
        message = f"changes from {moment(time(4))} to {moment(time(50))} come again, to audit"
        assert done.message == f"scope 'orders' is moved: {message}"
        await until(lambda: one.watcher.generations["observed_generation"] == first + 1)


async def test_a_dry_run_knows_what_is_handled_and_not_saved_yet() -> None:
    audit = Destination()
    one, control = controlled(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        await one.until_state(WatcherState.CAUGHT_UP)
        saved = await one.store.load("orders")
        assert saved is not None
        at = replace(saved.position, event_token=token(2), cluster_time=time(2))
        early = replace(saved, position=at)

        async def load(scope: str) -> Checkpoint:
            return early  # as of the last save

        one.store.load = load  # type: ignore[method-assign]
        tried = await ask(control, SEEK, "orders", BACK.model_copy(update={"dry_run": True}), BY)
        message = f"changes from {moment(time(4))} to {moment(time(9))} come again"
        assert message in tried.message


async def test_an_undo_of_a_move_that_is_not_applied_yet_leaves_the_scope_where_it_is() -> None:
    audit = Destination()
    one, control = controlled(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
    one.watcher.status.enter(WatcherState.STANDBY, "two follows it")
    await ask(control, SEEK, "orders", BACK, BY)
    undone = await ask(control, SEEK, "orders", SeekBody(undo=True), BY)
    assert undone.details["direction"] == "none"


@pytest.mark.parametrize("state", [*WatcherState])
async def test_each_action_in_each_state_is_done_or_refused(state: WatcherState) -> None:
    lease = ObservedLease("two", 3, held=False, reason="two follows it")
    one, control = controlled(lease=lambda scope: lease)
    control = replace(control, patience_seconds=0.02)
    one.watcher.status.enter(state)
    actions = ("snapshot", "restart", "seek", "pause", "resume")
    done = {action: await outcome(control, action) for action in actions}
    assert done["restart"] == 409  # nothing runs here, not even a halted scope: see below
    ordered = (done["seek"], done["pause"], done["resume"])
    if state is WatcherState.STOPPED:
        assert ordered == (409, 409, 409)
        return
    assert all(isinstance(each, Done) for each in ordered), ordered
    for each in ordered:
        assert isinstance(each, Done)
        if state is WatcherState.STANDBY:
            assert "stored; two applies it within a second" in each.message
        if state is WatcherState.HALTED:
            assert "it is halted: applies when it is restarted" in each.message
    stored = await one.runtime.desired_states.load("orders")
    assert stored is not None
    assert (stored.generation - stored.seek_generation, stored.paused, stored.by) == (2, False, BY)


@pytest.mark.parametrize("state", [*WatcherState])
@pytest.mark.parametrize("action", ["span", "letter", "discard"])
async def test_each_replay_in_each_state_is_done_or_refused(
    action: str, state: WatcherState
) -> None:
    audit, letters = Destination(), MemoryDeadLetters(waiting := letter(5))
    one, control = controlled(audit, letters=letters)
    one.watcher.status.enter(state, "two follows it")
    one.watcher.claim.epoch = 3
    await one.watcher.scope.desired.load(one.runtime.desired_states)
    span = ReplayBody(**{"from": moment(time(7)), "handler": "audit"})
    calls = {
        "span": lambda: ask(control, REPLAY, "orders", span, BY),
        "letter": lambda: ask(control, REPLAY_ONE, waiting.id, LetterBody(), BY),
        "discard": lambda: ask(control, DISCARD_ONE, waiting.id, LetterBody(), BY),
    }
    refused = {WatcherState.STANDBY} | ({WatcherState.STOPPED} if action == "span" else set())
    if state in refused:
        with pytest.raises(ActionRefused) as error:
            await calls[action]()
        assert error.value.status == 409
    else:
        await calls[action]()
    assert audit.handled == ([5] if action == "letter" and state not in refused else [])
    desired = await one.runtime.desired_states.load("orders")
    wanted = desired is not None and desired.of("audit").replay is not None
    assert wanted is (action == "span" and state not in refused)  # no run is there to apply it
    left = 1 if action == "span" or state in refused else 0
    assert len(await letters.letters()) == left


async def test_a_halted_scope_is_moved_where_it_can_continue_and_restarted() -> None:
    audit = Destination()
    one, control = controlled(audit)
    one.driver.unsent = {4}
    users = Watching(
        ScriptedDriver(), Destination().routed(), scope=Scope("users", "shop", "users")
    )
    control.supervisor.watchers.append(users.watcher)  # else the process would end
    async with running(control.supervisor):
        await one.until_state(WatcherState.HALTED)
        await ask(control, SEEK, "orders", SeekBody(at=moment(time(7))), BY)
        assert (await ask(control, RESTART, "orders", ALL, BY)).before == "halted"
        await until(lambda: audit.handled == [1, 2, 3, 7, 8, 9])


async def test_a_move_after_a_change_that_was_set_aside_is_a_gap_of_its_own() -> None:
    audit = Destination()
    one, control = controlled(audit)
    one.driver.unsent = {4}
    async with running(control.supervisor):
        await one.until_state(WatcherState.HALTED)
        await ask(control, SKIP, "orders", SkipBody(), BY)
        await until(lambda: audit.handled[-1] == 9)
        await one.until_state(WatcherState.CAUGHT_UP)
        await ask(control, PAUSE, "orders", ALL, BY)
        one.driver.oplog += changes(10, 13)
        one.runtime.clock.answered(time(12))
        await ask(control, SEEK, "orders", SeekBody(at=moment(time(12))), BY)
    gaps = await one.store.gaps("orders")
    assert [(gap.until, gap.policy) for gap in gaps] == [(time(4), "set_aside"), (time(12), "seek")]


async def test_one_change_that_cannot_be_sent_is_set_aside_and_no_other() -> None:
    audit = Destination()
    one, control = controlled(audit)
    one.driver.unsent = {4, 6}
    users = Watching(
        ScriptedDriver(), Destination().routed(), scope=Scope("users", "shop", "users")
    )
    control.supervisor.watchers.append(users.watcher)  # else the process would end
    async with running(control.supervisor):
        await one.until_state(WatcherState.HALTED)
        tried = await ask(control, SKIP, "orders", SkipBody(dry_run=True), BY)
        assert 'the insert of {"_id": 4} in shop.orders' in tried.message
        assert await one.runtime.desired_states.load("orders") is None
        done = await ask(control, SKIP, "orders", SkipBody(), BY)
        assert 'the insert of {"_id": 4} in shop.orders' in done.message
        await one.until_state(WatcherState.HALTED)
        assert audit.handled == [1, 2, 3, 5]
        await ask(control, SKIP, "orders", SkipBody(), BY)
        await until(lambda: audit.handled == [1, 2, 3, 5, 7, 8, 9])
        await one.until_state(WatcherState.CAUGHT_UP)
        with pytest.raises(ActionRefused, match="the server can send its next change"):
            await ask(control, SKIP, "orders", SkipBody(), BY)
    gaps = await one.store.gaps("orders")
    assert [gap.token for gap in gaps] == [token(4), token(6)]
    assert [gap.until for gap in gaps] == [time(4), time(6)]
    assert gaps[0].reason.startswith(f'{BY} set aside the insert of {{"_id": 4}} in shop.orders')


async def test_an_unknown_scope_is_told() -> None:
    _, control = controlled()
    with pytest.raises(ActionRefused, match="there is no scope 'odd'; there are: orders") as error:
        await ask(control, PAUSE, "odd", ALL, BY)
    assert error.value.status == 404


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (SeekBody(), 400, "exactly one of at, token and undo"),
        (SeekBody(at="2026-01-01T00:00:00Z", undo=True), 400, "exactly one"),
        (SeekBody(at="yesterday"), 400, "not an ISO 8601 time"),
        (SeekBody(at="2026-01-01T00:00:00"), 400, "has no time zone"),
        (SeekBody(at="2100-01-01T00:00:00Z"), 422, "in the future: the server's time is"),
        (SeekBody(at="1900-01-01T00:00:00Z"), 422, "not a time that MongoDB can store"),
        (SeekBody(token="xyz"), 400, "not a resume token"),
        (SeekBody(token={}), 400, "not a resume token"),
        (SeekBody(at=moment(time(4))), 422, "the oplog may not reach back to it"),
    ],
)
async def test_a_position_that_cannot_be_is_refused(
    body: SeekBody, status: int, message: str
) -> None:
    one, control = controlled()
    one.driver.faults[3] = [refused(286)]
    with pytest.raises(ActionRefused, match=message) as error:
        await ask(control, SEEK, "orders", body, BY)
    assert error.value.status == status
    assert await one.runtime.desired_states.load("orders") is None


async def test_two_changes_at_once_are_both_stored() -> None:
    one, control = controlled()
    one.watcher.status.enter(WatcherState.HALTED)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, control, PAUSE, "orders", ALL, BY)
        tasks.start_soon(ask, control, SEEK, "orders", BACK, BY)
    stored = await one.runtime.desired_states.load("orders")
    assert stored is not None
    assert (stored.paused, stored.seek is not None) == (True, True)


class Failing(MemoryDesiredStates):
    """A store that fails before or after it has stored a desired state, for so many calls."""

    def __init__(self, when: str, times: int) -> None:
        super().__init__()
        self.when, self.times = when, times

    async def write(self, desired: DesiredState) -> bool:
        self.times -= 1
        if self.times >= 0 and self.when == "before":
            raise CheckpointError("the disk is full")
        written = await super().write(desired)
        if self.times >= 0:
            raise CheckpointError("the answer was lost")
        return written


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_for_a_while_delays_a_change_and_stores_it_once(when: str) -> None:
    one, control = controlled(states=Failing(when, 2))
    async with running(control.supervisor):
        await one.until_state(WatcherState.CAUGHT_UP)
        assert (await ask(control, PAUSE, "orders", ALL, BY)).after == "paused"
    stored = await one.runtime.desired_states.load("orders")
    assert stored is not None
    assert stored.paused


class Forgetful(MemoryDesiredStates):
    def forget(self) -> None:
        self._states.clear()


async def test_a_change_after_a_record_that_was_removed_by_hand_is_applied() -> None:
    audit, states = Destination(), Forgetful()
    one, control = controlled(audit, states)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        await ask(control, SEEK, "orders", BACK, BY)
        await until(lambda: len(audit.handled) == 15)
        states.forget()
        await ask(control, PAUSE, "orders", ALL, BY)
        assert one.watcher.status.state is WatcherState.PAUSED
        await ask(control, RESUME, "orders", ALL, BY)
        await ask(control, SEEK, "orders", BACK, BY)
        await until(lambda: len(audit.handled) == 21)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_change_that_a_store_never_confirms_is_not_called_done(when: str) -> None:
    _, control = controlled(states=Failing(when, 99))
    with pytest.raises(ActionRefused, match="did not confirm it") as error:
        await ask(control, PAUSE, "orders", ALL, BY)
    assert error.value.status == 503


class Silent(MemoryDesiredStates):
    """A store whose method ``when`` does not answer."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.when = when

    async def load(self, scope: str) -> DesiredState | None:
        if self.when == "load":
            await anyio.sleep_forever()
        return await super().load(scope)

    async def write(self, desired: DesiredState) -> bool:
        await super().write(desired)
        await anyio.sleep_forever()
        return True


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("load", "nothing was changed: no answer from the store within 0.01 s"),
        ("write", "did not confirm it: no answer from the store within 0.01 s"),
    ],
)
async def test_a_change_is_refused_in_time_while_the_store_does_not_answer(
    when: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.control.desired_state.SECONDS", 0.01)
    _, control = controlled(states=Silent(when))
    with pytest.raises(ActionRefused, match=message) as error:
        await ask(control, PAUSE, "orders", ALL, BY)
    assert error.value.status == 503
