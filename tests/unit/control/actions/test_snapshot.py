"""Requests for a snapshot while another one is under way."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from tailrace.control.actions.dead_letters import REPLAY_ONE, LetterBody
from tailrace.control.actions.repair import repair_state
from tailrace.control.actions.snapshot import SNAPSHOT, SnapshotBody
from tailrace.control.control import Control
from tailrace.control.outcome import ActionRefused
from tailrace.engine import Routed, RunIdentity, WatcherState
from tailrace.engine.plan.row_source import KnownSnapshots
from tailrace.errors import ConnectionFailed
from tailrace.event.reply import Reply
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.desired_state import DesiredState
from tailrace.model.snapshot import SnapshotMode, SnapshotState
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.server import Find
from tailrace.snapshot.snapshots import Snapshots
from tailrace.stores.memory import MemoryDeadLetters, MemoryDesiredStates
from tests.contract.stores import letter
from tests.contract.test_verification_store import FIRST
from tests.guards import against_hanging
from tests.handlers import handler
from tests.unit.control.controlling import ask, control_of
from tests.unit.engine.changes import changes, checkpoint, settle
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import Destination, Watching

BY = "ann on laptop at 127.0.0.1"
START, CANCEL = SnapshotBody(), SnapshotBody(action="cancel")


class Gone:
    """A server that does not answer."""

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        raise ConnectionFailed("no primary")

    async def find(self, find: Find) -> Sequence[Reply]:
        raise ConnectionFailed("no primary")


def controlled(state: SnapshotState) -> tuple[Snapshots, Control]:
    """A scope whose snapshot was read that far; its handler has the beginning."""
    rows = Snapshots(Scope("orders", "shop"), Gone(), SnapshotOptions())
    one = Watching(ScriptedDriver(*changes(1, 10)), Destination().routed(), rows=rows)
    progress = SnapshotProgress("5f3a", SnapshotMode.REQUESTED, state)
    rows.begin(KnownSnapshots(progress))
    begun = replace(progress, state=SnapshotState.READING)
    one.watcher.status.checkpoint = checkpoint(1, snapshot=begun)
    one.watcher.status.enter(WatcherState.CAUGHT_UP)
    return rows, control_of(one)


async def test_a_snapshot_may_be_requested_as_soon_as_the_cancel_of_another_is_accepted() -> None:
    """The reader of the stream may not have applied the cancel yet."""
    rows, control = controlled(SnapshotState.READING)
    with pytest.raises(ActionRefused, match="snapshot 5f3a is not over: cancel it first"):
        await ask(control, SNAPSHOT, "orders", START, BY)
    await ask(control, SNAPSHOT, "orders", CANCEL, BY)
    await ask(control, SNAPSHOT, "orders", START, BY)
    observed = rows.observed()
    assert observed is not None
    assert observed.progress.id != "5f3a"


@pytest.mark.parametrize("action", [START, CANCEL], ids=["start", "cancel"])
async def test_nothing_is_requested_of_a_snapshot_before_it_is_known_what_is_under_way(
    action: SnapshotBody,
) -> None:
    """As after a reload: a start would take the place of the one that the checkpoint has."""
    rows, states = (
        Snapshots(Scope("orders", "shop"), Gone(), SnapshotOptions()),
        MemoryDesiredStates(),
    )
    progress = SnapshotProgress("5f3a", SnapshotMode.INITIAL, SnapshotState.READING)
    store = ScriptedStore(checkpoint(1, snapshot=progress))
    audit = Destination().routed()
    one = Watching(ScriptedDriver(*changes(1, 10)), audit, rows=rows, store=store, states=states)
    control, watcher = control_of(one), one.watcher
    for load in (None, watcher.claim.load(store), watcher.scope.desired.load(states)):
        if load is not None:
            await load
        with pytest.raises(ActionRefused, match="is starting: try again") as error:
            await ask(control, SNAPSHOT, "orders", action, BY)
        assert error.value.status == 503
    assert await states.load("orders") is None
    rows.begin(KnownSnapshots(progress))
    if action is CANCEL:
        await ask(control, SNAPSHOT, "orders", action, BY)
    else:
        with pytest.raises(ActionRefused, match="snapshot 5f3a is not over: cancel it first"):
            await ask(control, SNAPSHOT, "orders", action, BY)


async def test_a_snapshot_that_handlers_have_not_handled_is_not_over() -> None:
    _, control = controlled(SnapshotState.DONE)
    message = "snapshot 5f3a is not over: all documents are read; handlers have still to handle"
    with pytest.raises(ActionRefused, match=message) as error:
        await ask(control, SNAPSHOT, "orders", START, BY)
    assert error.value.status == 409


async def test_a_handler_gets_no_snapshot_of_its_own_in_the_middle_of_one_of_all() -> None:
    """It would leave the others for it, and never get the rest of theirs."""
    rows = Snapshots(Scope("orders", "shop"), Gone(), SnapshotOptions())
    handlers = [Destination(name).routed(concurrency=1) for name in ("audit", "index")]
    one = Watching(ScriptedDriver(*changes(1, 10)), *handlers, rows=rows)
    progress = SnapshotProgress("5f3a", SnapshotMode.INITIAL, SnapshotState.READING)
    rows.begin(KnownSnapshots(progress))
    one.watcher.status.enter(WatcherState.CAUGHT_UP)
    with pytest.raises(ActionRefused, match="snapshot 5f3a is not over: cancel it first"):
        await ask(control_of(one), SNAPSHOT, "orders", SnapshotBody(handler="audit"), BY)


@pytest.mark.parametrize(
    ("id", "state", "told"),
    [
        ("5f3a", SnapshotState.READING, "reading"),
        ("5f3a", SnapshotState.DONE, "done"),
        ("5f3a", SnapshotState.CANCELLED, "cancelled"),
        ("another", SnapshotState.DONE, "replaced"),
    ],
)
async def test_a_repair_tells_how_far_its_snapshot_is(
    id: str, state: SnapshotState, told: str
) -> None:
    rows, control = controlled(SnapshotState.READING)
    await control.watcher("orders").scope.desired.load(MemoryDesiredStates())
    assert rows.progress is not None
    rows.progress = replace(rows.progress, id=id, state=state)
    subject = control.subject("orders")
    subject = replace(subject, handler=subject.watcher.plan.routed[0].name)
    subject.status.checkpoint = checkpoint(1, snapshot=rows.progress)
    shown = repair_state(subject, replace(FIRST, repair="5f3a"))
    assert shown is not None
    assert (shown["snapshot"], shown["state"]) == ("5f3a", told)
    subject.status.enter(WatcherState.HALTED, "no such table")
    halted = repair_state(subject, replace(FIRST, repair="5f3a"))
    assert halted is not None
    expected = ("halted", "no such table") if told == "reading" else (told, halted["reason"])
    assert (halted["state"], halted["reason"]) == expected
    assert repair_state(subject, FIRST) is None


class SlowStates(MemoryDesiredStates):
    """A store that takes a while, in which other requests come."""

    async def write(self, desired: DesiredState) -> bool:
        await settle()
        return await super().write(desired)


async def nowhere(identity: RunIdentity) -> None: ...


def positioned(**fields: Any) -> tuple[Snapshots, Control, MemoryDeadLetters]:
    """A scope whose handler stores its own position, and has a dead letter."""
    rows = Snapshots(Scope("orders", "shop", "orders"), Gone(), SnapshotOptions())
    of = handler("audit", on_events=Destination().on_events, position=nowhere)
    letters = MemoryDeadLetters(letter(1))
    one = Watching(ScriptedDriver(), Routed(of, None), rows=rows, letters=letters, **fields)
    one.watcher.status.enter(WatcherState.CAUGHT_UP)
    return rows, control_of(one), letters


@pytest.mark.parametrize("first", ["dead letters", "snapshot"])
async def test_a_snapshot_in_place_of_dead_letters_takes_no_other_one_s_place(first: str) -> None:
    """Of two requests at once the later one is refused: the letters are discarded for theirs."""
    states, done, refused = SlowStates(), list[str](), list[str]()
    rows, control, letters = positioned(states=states)
    watcher = control.watcher("orders")
    await watcher.claim.load(control.checkpoints)
    await watcher.scope.desired.load(states)
    rows.begin(KnownSnapshots(None))

    async def request(what: str) -> None:
        try:
            if what == "snapshot":
                await ask(control, SNAPSHOT, "orders", START, BY)
            else:
                await ask(control, REPLAY_ONE, letter(1).id, LetterBody(), BY)
        except ActionRefused as error:
            refused.append(str(error))
        else:
            done.append(what)

    async with anyio.create_task_group() as requests:
        for what in sorted(["dead letters", "snapshot"], key=lambda what: what != first):
            requests.start_soon(request, what)
    desired = await states.load("orders")
    assert desired is not None
    assert desired.snapshot is not None
    assert done == [first]
    assert "is not over" in refused[0]
    assert bool(desired.snapshot.filter) is (first == "dead letters")
    assert (await letters.letters() == []) is (first == "dead letters")


async def test_dead_letters_wait_while_it_is_not_known_which_snapshot_is_under_way() -> None:
    progress = SnapshotProgress("5f3a", SnapshotMode.INITIAL, SnapshotState.READING)
    store = ScriptedStore(checkpoint(1, snapshot=progress))
    _, control, letters = positioned(store=store)
    watcher = control.watcher("orders")
    await watcher.claim.load(store)
    await watcher.scope.desired.load(control.desired_states)
    with pytest.raises(ActionRefused, match="is starting: try again"):
        await ask(control, REPLAY_ONE, letter(1).id, LetterBody(), BY)
    assert len(await letters.letters()) == 1


async def test_a_request_of_one_scope_waits_for_no_request_of_another() -> None:
    """The store does not answer about that one: a record may be locked by somebody's shell."""

    class Silent(SlowStates):
        async def write(self, desired: DesiredState) -> bool:
            while desired.scope == "orders":
                await anyio.sleep_forever()
            return await super().write(desired)

    states = Silent()
    _, control, _ = positioned(states=states)
    users = Scope("users", "shop", "users")
    rows = Snapshots(users, Gone(), SnapshotOptions())
    other = Watching(ScriptedDriver(), Destination().routed(), scope=users, rows=rows)
    other.watcher.status.enter(WatcherState.CAUGHT_UP)
    control.supervisor.watchers.append(other.watcher)
    for watcher in control.supervisor.watchers:
        await watcher.scope.desired.load(states)
    async with anyio.create_task_group() as requests:
        requests.start_soon(ask, control, SNAPSHOT, "orders", START, BY)
        await anyio.wait_all_tasks_blocked()
        with against_hanging():
            done = await ask(control, SNAPSHOT, "users", START, BY)
        requests.cancel_scope.cancel()
    assert done.message == "scope 'users': start of its snapshot is accepted"
