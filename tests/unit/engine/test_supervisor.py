"""Many watchers: each is independent, and one answer covers all of them."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tailrace.engine import Watcher, WatcherState
from tailrace.engine.held_lease import ObservedLease
from tailrace.engine.status.status import Status
from tailrace.model import Scope
from tailrace.stream import Interrupt
from tests.guards import against_hanging
from tests.unit.engine.changes import change, token, until
from tests.unit.engine.scripted_driver import ScriptedDriver, disconnected, refused
from tests.unit.engine.watching import (
    NEVER,
    NOW,
    Destination,
    Watching,
    running,
    stopped_clock,
    supervisor_of,
)


def watching(name: str, *oplog: dict[str, Any], **fields: Any) -> tuple[Watching, Destination]:
    destination = Destination(name)
    one = Watching(
        ScriptedDriver(*oplog),
        destination.routed(),
        scope=Scope(name, "shop", name),
        **fields,
    )
    return one, destination


def in_state(state: WatcherState, reason: str = "") -> list[str]:
    one, _ = watching("orders")
    one.watcher.status.enter(state, reason)
    other, _ = watching("users")
    other.watcher.status.enter(WatcherState.STREAMING)
    return supervisor_of(one, other).not_ready()


READING = (WatcherState.CATCHING_UP, WatcherState.STREAMING, WatcherState.CAUGHT_UP)
ENDED = WatcherState.STOPPED  # as configured


@pytest.mark.parametrize("state", [*READING, WatcherState.WAITING, ENDED])
def test_a_service_is_ready_while_changes_flow_or_are_searched_for(state: WatcherState) -> None:
    assert in_state(state) == []


@pytest.mark.parametrize(
    ("state", "reason", "answer"),
    [
        (WatcherState.STARTING, "", "scope orders: starting"),
        (WatcherState.DRAINING, "", "scope orders: draining"),
        (WatcherState.BACKING_OFF, "no primary", "scope orders: backing_off: no primary"),
        (WatcherState.HALTED, "act", "scope orders: halted: act"),
    ],
)
def test_a_service_that_is_not_ready_says_why(
    state: WatcherState, reason: str, answer: str
) -> None:
    assert in_state(state, reason) == [answer]


@pytest.mark.parametrize(("held", "ready"), [(False, True), (True, False)])
def test_a_service_that_has_just_got_a_lease_is_not_ready_before_it_reads(
    held: bool, ready: bool
) -> None:
    """Changes that are written then would come before the scope's "now"."""
    lease = ObservedLease("one", 1, held=held)
    one, _ = watching("orders", lease=lambda scope: lease)
    one.watcher.status.stand_by()
    assert (supervisor_of(one).not_ready() == []) is ready


def test_a_service_is_degraded_by_scope_and_handler_while_dead_letters_wait() -> None:
    one, _ = watching("orders")
    other, _ = watching("users")
    supervisor = supervisor_of(one, other)
    assert supervisor.degraded() == []  # and unknown counts say nothing
    for watched, letters in ((one, 2), (other, 1)):
        (recorder,) = watched.watcher.status.recorders.values()
        recorder.waiting = letters
    first, second = supervisor.degraded()
    assert first.startswith("scope orders: 2 dead letters wait for handler 'orders': see ")
    assert "'tailrace dead-letters list --scope orders'" in first
    assert second.startswith("scope users: 1 dead letter waits for handler 'users': see ")


def of(state: WatcherState, heard: float | None, since: float) -> list[str]:
    one, _ = watching("orders")
    status: Status = one.watcher.status
    status.enter(state)
    status.entered = NOW - since
    status.stream.heard = None if heard is None else NOW - heard
    with stopped_clock():
        return supervisor_of(one).not_alive()


@pytest.mark.parametrize("state", READING)
def test_liveness_ends_if_a_reader_receives_nothing(state: WatcherState) -> None:
    (reason,) = of(state, heard=1000, since=2000)
    assert reason == "scope orders: no answer from the server for 1000 s"
    assert of(state, heard=200, since=2000) == []


@pytest.mark.parametrize("state", sorted(set(WatcherState) - set(READING)))
def test_liveness_does_not_end_if_nobody_reads(state: WatcherState) -> None:
    """Restarting the process would not help a slow handler or an absent server."""
    assert of(state, heard=1000, since=2000) == []


@pytest.mark.parametrize(("heard", "since"), [(None, 2000), (1000, 1)])
def test_liveness_does_not_end_before_the_first_answer_or_right_after_a_long_pause(
    heard: float | None, since: float
) -> None:
    assert of(WatcherState.STREAMING, heard, since) == []


async def test_status_tells_each_scope_in_json() -> None:
    one, handled = watching("orders", change(1))
    two, _ = watching("users", backoff=NEVER)
    two.driver.refusals = [disconnected()]
    supervisor = supervisor_of(one, two)
    async with running(supervisor):
        await until(lambda: handled.handled == [1])
        await one.until_state(WatcherState.CAUGHT_UP)
        await two.until_state(WatcherState.BACKING_OFF)
        text = json.dumps(supervisor.status())
    status = json.loads(text)
    assert list(status) == ["orders", "users"]
    assert status["orders"]["state"] == "caught_up"
    assert status["orders"]["lag_seconds"] == {"read": 0, "handled": 0, "committed": 0}
    assert status["users"]["state"] == "backing_off"
    assert status["users"]["last_error"] == "connection closed"
    assert token(1).document["_data"] not in text


async def test_the_restart_of_a_halted_scope_continues_from_its_checkpoint() -> None:
    good, _ = watching("orders", change(1))
    bad, handled = watching("users", change(1))
    bad.driver.oplog.append(change(2))
    bad.driver.unsent = {2}
    supervisor = supervisor_of(good, bad)
    async with running(supervisor):
        await bad.until_state(WatcherState.HALTED)
        assert handled.handled == [1]
        bad.driver.unsent = set()
        assert supervisor.restart("users") == ""
        assert supervisor.halted == []
        await until(lambda: handled.handled == [1, 2])
        await bad.until_state(WatcherState.CAUGHT_UP)
        status = supervisor.status()["users"]
        assert bad.counted("watcher_restarts_total", reason="operator") == 1
    assert bad.driver.start_options[0] == "at 1"
    assert bad.driver.start_options[-1] == "resume after 1"
    assert status["restarts"] == 1
    assert status["events"] == 2
    assert "no image (code 47 Scripted)" in status["last_error"]


async def test_a_restart_is_only_for_scopes_halted_here_while_the_process_runs() -> None:
    good, handled = watching("orders", change(1))
    bad, _ = watching("users", change(1))
    bad.driver.refused_starts = {"at 1": refused(20)}
    supervisor = supervisor_of(good, bad)
    async with running(supervisor):
        await bad.until_state(WatcherState.HALTED)
        await until(lambda: handled.handled == [1])
        assert "only a halted one is restarted" in supervisor.restart("orders")
        with pytest.raises(LookupError):
            supervisor.restart("nowhere")
    assert "the process is ending" in supervisor.restart("users")
    assert supervisor.halted == ["users"]


async def test_while_all_scopes_are_halted_it_stays_and_one_can_be_restarted_or_changed() -> None:
    one, handled = watching("orders", change(1))
    one.driver.unsent = {1}
    supervisor = supervisor_of(one)
    async with running(supervisor):
        await one.until_state(WatcherState.HALTED)
        assert supervisor.unchangeable == ""
        (reason,) = supervisor.not_ready()
        assert reason.startswith("scope orders: halted: ")
        one.driver.unsent = set()
        assert supervisor.restart("orders") == ""
        await until(lambda: handled.handled == [1])
    assert supervisor.halted == []


async def test_a_halted_scope_that_is_being_changed_starts_with_that_alone() -> None:
    """A restart would put the former watcher back, whose handlers the change closes."""
    former, _ = watching("orders", change(1))
    former.driver.unsent = {1}
    later, handled = watching("orders", change(1))
    supervisor, may_begin = supervisor_of(former), anyio.Event()

    async def begin() -> Watcher:
        await may_begin.wait()
        return later.watcher

    async with running(supervisor):
        await former.until_state(WatcherState.HALTED)
        supervisor.change("orders", begin, 10)
        for _ in range(3):
            assert "is being changed by a reload" in supervisor.restart("orders")
            await anyio.lowlevel.checkpoint()
        may_begin.set()
        await until(lambda: handled.handled == [1])
        assert supervisor.watchers == [later.watcher]
        assert "only a halted one is restarted" in supervisor.restart("orders")


async def test_a_change_that_cuts_calls_off_says_that_their_changes_come_again() -> None:
    former, handled = watching("orders", change(1))
    handled.held = {1}
    later, again = watching("orders", change(1))

    async def begin() -> Watcher:
        return later.watcher

    supervisor = supervisor_of(former)
    async with running(supervisor) as logs:
        await until(lambda: handled.begun == [1])
        supervisor.change("orders", begin, 0)
        await until(lambda: again.handled == [1])
    (cut,) = [each for each in logs if each["event"] == "scope.not_drained"]
    assert (cut["scope"], cut["reason"]) == ("orders", "its shutdown.grace_seconds are over")
    assert handled.handled == []


async def test_when_all_halted_exit_ends_it_with_its_last_scope() -> None:
    one, _ = watching("orders", change(1))
    one.driver.unsent = {1}
    supervisor = supervisor_of(one)
    supervisor.stays = False
    with against_hanging():
        await supervisor.run(Interrupt())
    assert supervisor.halted == ["orders"]
    assert "the process is ending" in supervisor.restart("orders")
