"""Replays of a span of time to one handler, beside the scope."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tailrace.cli.checkpoints import reset_position
from tailrace.control.actions.pause import PAUSE, RESUME
from tailrace.control.actions.replay import LAST_REPLAY, REPLAY, ReplayBody
from tailrace.control.actions.restart import RESTART
from tailrace.control.actions.seek import SEEK, SeekBody
from tailrace.control.bodies import ApplyBody, HandlerQuery
from tailrace.control.control import Control
from tailrace.control.outcome import ActionRefused
from tailrace.control.server_positions import moment
from tailrace.engine import Commit, HeldLease, Routed, WatcherState
from tailrace.engine.held_lease import ObservedLease
from tailrace.errors import CheckpointError, Unavailable
from tailrace.event import ChangeEvent
from tailrace.model import Checkpoint, Scope
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tests.guards import against_hanging
from tests.handlers import handler
from tests.unit.control.controlling import ask, control_of
from tests.unit.engine.changes import change, changes, invalidate, number, time, token, until
from tests.unit.engine.scripted_driver import ScriptedDriver, disconnected, refused
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import Destination, Watching, running

BY = "ann"
TWICE = FailurePolicy(attempts=2, backoff=Backoff(0, 0), halt=True)


def span(since: int, to: int | None = None, handler: str = "audit", **more: Any) -> ReplayBody:
    given = {"from": moment(time(since)), "handler": handler, **more}
    return ReplayBody(**given, to=None if to is None else moment(time(to)))


def followed(
    *destinations: Destination,
    by_batch: bool = False,
    failure: FailurePolicy = TWICE,
    driver: ScriptedDriver | None = None,
    **fields: Any,
) -> tuple[Watching, Control]:
    users = change(8, ns={"db": "shop", "coll": "users"})
    driver = driver or ScriptedDriver(*changes(1, 8), users, change(9))
    routed = [
        each.routed_by_batch(batch_size=2, failure=failure)
        if by_batch
        else each.routed(failure=failure, concurrency=1)
        for each in destinations
    ]
    one = Watching(driver, *routed, checkpoint_seconds=0, **fields)
    one.runtime.clock.answered(time(9))
    return one, control_of(one)


async def replay(control: Control) -> dict[str, Any]:
    found: dict[str, Any] = (await ask(control, LAST_REPLAY, "orders", HandlerQuery()))["replay"]
    return found


async def ended(control: Control) -> dict[str, Any]:
    """The last replay, when it is over."""
    return await shown(control, lambda found: found["state"] != "running")


async def shown(control: Control, there: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
    """The last replay, as soon as that is there."""
    with against_hanging():
        while not there(found := await replay(control)):
            await anyio.lowlevel.checkpoint()
    return found


@pytest.mark.parametrize("by_batch", [False, True])
@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        (span(3, 6), [3, 4, 5, 6]),
        (span(7), [7, 8, 9]),
        (span(7, collections=["orders"]), [7, 9]),
        (span(7, collections=["shop.users"]), [8]),
        (span(3, keys=["4", '{"_id": {"$numberLong": "8"}}'], collections=["orders"]), [4]),
    ],
)
async def test_the_changes_of_a_span_come_again_to_one_handler_only(
    asked: ReplayBody, numbers: list[int], by_batch: bool
) -> None:
    audit, other = Destination(), Destination("other")
    one, control = followed(audit, other, by_batch=by_batch, scope=Scope("orders", "shop"))
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == len(other.handled) == 9)
        done = await ask(control, REPLAY, "orders", asked, BY)
        assert "come again, to audit; GET /scopes/orders/replay" in done.message
        found = await ended(control)
        one.driver.oplog.append(change(10))
        await until(lambda: len(other.handled) == 10)
    assert (found["state"], found["handled"]) == ("done", len(numbers))
    assert audit.handled[9 : 9 + len(numbers)] == numbers
    assert other.handled == [*range(1, 11)]


async def test_a_transaction_at_the_end_of_the_span_comes_whole() -> None:
    """Its changes have one time, and may come in several replies."""
    audit = Destination()
    one, control = followed(audit)
    tokens = [token(9, f"2B{n}").document for n in (10, 11, 12)]
    one.driver.oplog += [change(9, n, _id=each) for n, each in enumerate(tokens)]
    one.driver.batch_size = 1
    async with running(control.supervisor):
        await until(lambda: audit.handled[-4:] == [9] * 4)
        await ask(control, REPLAY, "orders", span(9, 9), BY)
        assert (await ended(control))["handled"] == 4


async def test_a_dry_run_hands_nothing_over() -> None:
    audit = Destination()
    _, control = followed(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        done = await ask(control, REPLAY, "orders", span(3, 6, dry_run=True), BY)
    assert done.message.endswith("Dry run: nothing was handed over")
    assert len(audit.handled) == 9


async def test_an_invalidate_inside_the_span_does_not_end_it() -> None:
    audit = Destination()
    one, control = followed(audit)
    one.driver.oplog[4] = invalidate(5)
    async with running(control.supervisor):
        await until(lambda: audit.handled[-1:] == [9])
        before = list(audit.handled)
        await ask(control, REPLAY, "orders", span(3), BY)
        assert (await ended(control))["state"] == "done"
    assert audit.handled[len(before) :] == [n for n in before if n >= 3]


class Faulty(Destination):
    """Raises the errors that a test has for an event, one at each call."""

    def __init__(self, **errors: list[Exception]) -> None:
        super().__init__()
        self.errors = errors

    async def on_event(self, event: ChangeEvent) -> None:
        if found := self.errors.get(f"at_{number(event)}"):
            raise found.pop(0)
        await super().on_event(event)


async def test_a_change_that_fails_ends_a_replay_and_says_from_where_it_can_go_on() -> None:
    audit = Faulty()
    _, control = followed(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        audit.errors = {"at_5": [ValueError("poison"), ValueError("poison")]}
        await ask(control, REPLAY, "orders", span(3), BY)
        found = await ended(control)
        assert (found["state"], found["handled"]) == ("failed", 2)
        assert "poison" in found["reason"]
        assert f"resume from {moment(time(4))}" in found["reason"]
        audit.errors = {"at_5": [ValueError("poison")]}
        await ask(control, REPLAY, "orders", span(4), BY)
        assert (await ended(control))["state"] == "done"
    assert audit.handled[9:] == [3, 4, *range(4, 10)]


@pytest.mark.parametrize("by_batch", [False, True])
async def test_a_replay_waits_out_an_outage_as_any_change_does(by_batch: bool) -> None:
    """The outage is longer than the attempts of the policy, and no change is at fault."""
    audit = Faulty()
    _, control = followed(audit, by_batch=by_batch)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        audit.errors = {"at_5": [Unavailable("down", retry_after=0) for _ in range(20)]}
        await ask(control, REPLAY, "orders", span(3), BY)
        found = await ended(control)
    assert (found["state"], found["handled"]) == ("done", 7)
    assert sorted(set(audit.handled[9:])) == [*range(3, 10)]


async def test_an_outage_says_why_a_replay_does_not_go_on() -> None:
    audit = Faulty()
    _, control = followed(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        audit.errors = {"at_5": [Unavailable("in the rack", retry_after=3600)]}
        await ask(control, REPLAY, "orders", span(3), BY)
        found = await shown(control, lambda found: "in the rack" in found["reason"])
        assert found["state"] == "running"
        await ask(control, REPLAY, "orders", ReplayBody(cancel=True), BY)
        assert (await ended(control))["state"] == "cancelled"


async def test_a_change_of_a_replay_becomes_a_dead_letter_by_the_policy() -> None:
    audit = Faulty()
    one, control = followed(audit, failure=FailurePolicy())
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        audit.errors = {"at_5": [ValueError("poison")]}
        await ask(control, REPLAY, "orders", span(3), BY)
        assert (await ended(control))["state"] == "done"
    assert audit.handled[9:] == [3, 4, 6, 7, 8, 9]
    (letter,) = await one.runtime.letters.letters()
    assert letter.error == "ValueError: poison"


async def test_a_replay_goes_on_after_a_restart_where_it_was() -> None:
    """In the next process, or in the next watcher of the scope after a reload."""
    audit = Destination()
    one, control = followed(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        audit.held = {6}
        await ask(control, REPLAY, "orders", span(3), BY)
        await until(lambda: audit.begun[-1] == 6)
        control.supervisor.change("orders", lambda: none(), 0.0)
        audit.held = set()
        await until(lambda: not control.supervisor.watchers)
    assert audit.handled[9:12] == [3, 4, 5]
    again, next_control = followed(
        audit, store=one.store, states=one.runtime.desired_states, driver=one.driver
    )
    before = len(audit.handled)
    async with running(next_control.supervisor):
        while not again.watcher.scope.desired.is_loaded:
            with pytest.raises(ActionRefused, match="is starting: try again") as refusal:
                await replay(next_control)
            assert refusal.value.status == 503
            with pytest.raises(ActionRefused, match="is starting: try again"):
                await ask(next_control, REPLAY, "orders", ReplayBody(cancel=True), BY)
            await anyio.lowlevel.checkpoint()
        found = await ended(next_control)
    assert (found["state"], found["handled"], found["handler"]) == ("done", 7, "audit")
    assert audit.handled[before:] == [*range(audit.handled[before - 1] + 1, 10)]


async def none() -> None:
    """No watcher follows the scope any more."""


async def test_a_replay_goes_on_while_the_scope_is_halted_or_paused() -> None:
    audit = Faulty()
    one, control = followed(audit)
    async with running(control.supervisor) as logs:
        await until(lambda: len(audit.handled) == 9)
        await ask(control, PAUSE, "orders", ApplyBody(), BY)
        await ask(control, REPLAY, "orders", span(3), BY)
        assert (await ended(control))["state"] == "done"
        await ask(control, RESUME, "orders", ApplyBody(), BY)
        audit.held, audit.errors = {5}, {"at_10": [ValueError("poison")] * 2}
        await ask(control, REPLAY, "orders", span(3), BY)
        await until(lambda: audit.begun[-1] == 5)
        one.driver.oplog.append(change(10))
        await one.until_state(WatcherState.HALTED)
        audit.held = set()
        assert (await ended(control))["state"] == "done"
        await ask(control, RESTART, "orders", ApplyBody(), BY)
        await until(lambda: audit.handled[-1] == 10)
    assert [log["state"] for log in logs if log["event"] == "replay.ended"] == ["done"] * 2


async def test_a_cancelled_replay_does_not_wait_for_a_call_that_hangs() -> None:
    audit = Destination()
    one, control = followed(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        audit.held = {5}
        await ask(control, REPLAY, "orders", span(3), BY)
        await until(lambda: audit.begun[-1] == 5)
        await ask(control, REPLAY, "orders", ReplayBody(cancel=True), BY)
        order = await one.runtime.desired_states.load("orders")
        assert order is not None
        while (await replay(control))["state"] == "running":
            control.supervisor.apply(order)  # as the store says again and again
            await anyio.lowlevel.checkpoint()
        assert (await replay(control))["state"] == "cancelled"
        await ask(control, REPLAY, "orders", span(8), BY)
        assert (await ended(control))["state"] == "done"
    assert audit.handled[9:] == [3, 4, 8, 9]


async def test_a_handler_that_commits_stands_still_until_its_replay_is_over() -> None:
    """It would commit what both gave it in one piece, and lose both if that fails."""
    audit, committed = Destination(), list[int]()

    async def commit(identity: object) -> None:
        committed.append(len(audit.handled))

    late = Routed(handler("audit", on_events=audit.on_events, commit=Commit(commit, 1, 10**6, 0)))
    driver = ScriptedDriver(*changes(1, 10))
    one = Watching(driver, late, checkpoint_seconds=0)
    one.runtime.clock.answered(time(9))
    control = control_of(one)
    async with running(control.supervisor):
        await until(lambda: committed[-1:] == [9])
        with pytest.raises(ActionRefused, match="pause the scope, replay, and resume it"):
            await ask(control, REPLAY, "orders", span(3), BY)
        await ask(control, PAUSE, "orders", ApplyBody(), BY)
        audit.held = {5}
        await ask(control, REPLAY, "orders", span(3), BY)
        await until(lambda: audit.begun[-1] == 5)
        await ask(control, RESUME, "orders", ApplyBody(wait=0), BY)
        await until(lambda: "waits for the end of its replay" in one.reason)
        driver.oplog.append(change(10))
        assert one.watcher.status.state is WatcherState.PAUSED
        audit.held = set()
        assert (await ended(control))["state"] == "done"
        await until(lambda: audit.handled[-1] == 10)
    assert audit.handled[9:] == [*range(3, 11)]


async def test_a_reset_of_the_scope_forgets_its_replays() -> None:
    audit = Destination()
    one, control = followed(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        await ask(control, REPLAY, "orders", span(3), BY)
        assert (await ended(control))["state"] == "done"
    await reset_position(one.store, one.runtime.desired_states, "orders", datetime.now(UTC))
    again, control = followed(
        audit, store=one.store, states=one.runtime.desired_states, driver=one.driver
    )
    before = len(audit.handled)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == before + 9)
        await again.until_state(WatcherState.CAUGHT_UP)
        assert not again.watcher.replays.running
    assert audit.handled[before:] == [*range(1, 10)]


class Unwritable(ScriptedStore):
    """It stores no positions of replays at this time."""

    refusing = False

    async def save(self, checkpoint: Checkpoint) -> None:
        if self.refusing and checkpoint.replays:
            raise CheckpointError("the disk is full")
        await super().save(checkpoint)


async def test_a_move_of_the_scope_ends_no_replay_that_has_not_begun() -> None:
    audit, store = Destination(), Unwritable()
    _, control = followed(audit, store=store)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        store.refusing = True
        await ask(control, REPLAY, "orders", span(3, 6), BY)
        moved = await ask(control, SEEK, "orders", SeekBody(at=moment(time(8))), BY)
        assert moved.details["effective"]
        await until(lambda: audit.handled[9:] == [8, 9])
        store.refusing = False
        assert (await ended(control))["state"] == "done"
    assert audit.handled[9:] == [8, 9, 3, 4, 5, 6]


async def test_a_scope_is_restarted_once_if_its_last_replay_ends_at_that_moment() -> None:
    audit = Destination()
    one, control = followed(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        audit.held = {5}
        await ask(control, REPLAY, "orders", span(3), BY)
        await until(lambda: audit.begun[-1] == 5)
        one.driver.unsent.add(10)
        one.driver.oplog.append(change(10))
        await one.until_state(WatcherState.HALTED)
        audit.held = set()
        await until(lambda: not one.watcher.replays.running)
        await ask(control, RESTART, "orders", ApplyBody(), BY)
        await one.until_state(WatcherState.HALTED)
        one.driver.unsent.clear()
        await ask(control, RESTART, "orders", ApplyBody(), BY)
        await until(lambda: audit.handled[-1] == 10)


async def test_a_replay_whose_history_is_lost_fails_and_skips_nothing() -> None:
    audit = Destination()
    one, control = followed(audit, skip_lost_history=True)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        await ask(control, REPLAY, "orders", span(3), BY)
        one.driver.refused_starts["at 3"] = refused(286)
        found = await ended(control)
        one.driver.oplog.append(change(10))
        await until(lambda: audit.handled[-1] == 10)
    assert found["state"] == "failed"
    assert await one.store.gaps("orders") == []


async def test_a_replay_goes_on_after_a_lost_connection_with_the_next_change() -> None:
    audit = Destination()
    one, control = followed(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        one.driver.faults[5] = [disconnected()]
        await ask(control, REPLAY, "orders", span(3), BY)
        assert (await ended(control))["state"] == "done"
        assert not one.driver.faults[5]
    assert audit.handled[9:] == [3, 4, 5, 6, 7, 8, 9]


async def test_of_two_replays_at_once_one_is_refused() -> None:
    audit = Destination()
    _, control = followed(audit)
    outcomes = list[str]()

    async def asked() -> None:
        try:
            await ask(control, REPLAY, "orders", span(8), BY)
            outcomes.append("begun")
        except ActionRefused as error:
            outcomes.append(str(error))

    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 9)
        audit.held = {8}
        async with anyio.create_task_group() as asking:
            asking.start_soon(asked)
            asking.start_soon(asked)
        audit.held = set()
        assert (await ended(control))["handled"] == 2
    assert outcomes[0] == "begun"
    assert "a replay is running: wait for its end, or cancel it" in outcomes[1]
    assert audit.handled[9:] == [8, 9]


@pytest.mark.parametrize("end", ["cancel", "standby"])
async def test_a_replay_ends_at_a_request_or_when_the_scope_moves(end: str) -> None:
    audit = Destination()
    one, control = followed(audit)
    async with running(control.supervisor) as logs:
        await until(lambda: len(audit.handled) == 9)
        one.watcher.claim.lease = lease = HeldLease("orders", 1, inf)
        audit.held = {5}
        await ask(control, REPLAY, "orders", span(3), BY)
        await until(lambda: audit.begun[-1] == 5)
        with pytest.raises(ActionRefused, match="a replay is running"):
            await ask(control, REPLAY, "orders", span(3), BY)
        if end == "cancel":
            await ask(control, REPLAY, "orders", ReplayBody(cancel=True), BY)
        else:
            lease.give_up()
        audit.held = set()
        await until(lambda: not one.watcher.replays.running)
        found = await replay(control)
    state, event = ("cancelled", "ended") if end == "cancel" else ("running", "interrupted")
    assert found["state"] == state
    assert [log["event"] for log in logs if log["event"].startswith("replay.")] == [
        f"replay.{event}"
    ]
    assert audit.handled[9:] == [3, 4, 5]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (ReplayBody(), 400, "give from and handler, or cancel"),
        (ReplayBody(cancel=True), 409, "no replay is running"),
        (span(3, handler="odd"), 422, "has no handler 'odd': choose one of audit"),
        (span(3, collections=["odd"]), 422, "does not have the collection 'odd': it has orders"),
        (span(3, keys=["A-17"]), 400, "keys: .*write text with quotes"),
        (span(6, 3), 422, "before it begins"),
        (span(99), 422, "from: .* is in the future"),
        (span(3, 99), 422, "to: .* is in the future"),
        (span(4), 422, "the oplog may not reach back"),
    ],
)
async def test_a_span_that_cannot_be_is_refused(
    body: ReplayBody, status: int, message: str
) -> None:
    one, control = followed(Destination())
    await one.watcher.scope.desired.load(one.runtime.desired_states)
    one.driver.faults[3] = [refused(286)]
    with pytest.raises(ActionRefused, match=message) as error:
        await ask(control, REPLAY, "orders", body, BY)
    assert error.value.status == status


@pytest.mark.parametrize(
    ("owner", "reason", "message"),
    [
        ("two", "two follows it", "is followed by two, and not by this process: ask there"),
        ("", "its lease is old", r"not follow scope 'orders' \(its lease is old\): try again"),
        (None, "the store is down", r"not follow scope 'orders' \(the store is down\): try again"),
    ],
)
async def test_a_process_that_stands_by_names_the_owner(
    owner: str | None, reason: str, message: str
) -> None:
    lease = ObservedLease(owner, 3, held=False, reason=reason)
    one, control = followed(Destination(), lease=lambda scope: lease)
    one.watcher.status.enter(WatcherState.STANDBY)
    with pytest.raises(ActionRefused, match=message):
        await ask(control, REPLAY, "orders", span(3), BY)


class Server:
    """Notes the names of commands; its oplog begins with the first change."""

    def __init__(self) -> None:
        self.asked = list[str]()

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(next(iter(command)))
        return {"operationTime": time(9), "cursor": {"firstBatch": [{"ts": time(1)}]}}


async def test_the_server_is_asked_once_for_its_times() -> None:
    (_, control), server = followed(Destination()), Server()
    control = replace(control, server=server)
    done = await ask(control, REPLAY, "orders", span(3, 6, dry_run=True), BY)
    assert f"from {moment(time(3))} to {moment(time(6))} come again" in done.message
    assert server.asked == ["ping", "find"]
