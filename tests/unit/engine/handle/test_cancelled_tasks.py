"""Handlers cancel, or otherwise damage, other tasks: the scope continues, or says why not.

``HARMS`` lists what one call does to its task. In every case each change is handled or becomes a
dead letter, changes of one document stay in order, and the stop is clean.
"""

import asyncio
import gc

import anyio
import anyio.lowlevel
import pytest

from tailrace.engine import Handler, Routed, WatcherState
from tailrace.engine.handle import isolation
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.stores.memory import MemoryDeadLetters
from tests.handlers import handler
from tests.unit.engine.changes import change, set_aside, time, until
from tests.unit.engine.harms import FORMS, HARMS, Harm, Harmful, task
from tests.unit.engine.scripted_driver import ScriptedDriver, disconnected
from tests.unit.engine.watching import NEVER, Destination, Watching, running, supervisor_of

AT_ONCE = Backoff(0, 0)
EVENTS = 24
KEYS = 5


async def test_a_call_that_ignores_its_cancellation_is_cancelled_again_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not in every turn of the loop; and its end is no failure of its own."""
    monkeypatch.setattr(isolation, "EAGER_SECONDS", 0)
    monkeypatch.setattr(isolation, "AGAIN_SECONDS", 0.01)
    cancelled = ended_by_us = turns = 0

    async def counts() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def stubborn() -> None:
        nonlocal cancelled, ended_by_us
        while cancelled < 10:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled += 1
        ended_by_us = isolation.cancelled_by_us()

    async with anyio.create_task_group() as beside:
        beside.start_soon(counts)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await isolation.in_own_task(stubborn, "stubborn")()
        beside.cancel_scope.cancel()
    assert ended_by_us
    assert turns > 3 * cancelled


def watching_of(handler: Handler, letters: MemoryDeadLetters) -> Watching:
    changes = [change(n, key=n % KEYS) for n in range(1, EVENTS + 1)]
    return Watching(ScriptedDriver(*changes), Routed(handler), letters=letters)


def assert_in_order(handled: list[int]) -> None:
    """The first deliveries of each document are in order; later copies do not count."""
    for key in range(KEYS):
        first = list(dict.fromkeys(n for n in handled if n % KEYS == key))
        assert first == sorted(first)


@pytest.mark.parametrize("seconds", [None, 30.0], ids=["no limit", "time limit"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
class TestHarm:
    async def test_a_handler_that_cancels_tasks_now_and_then_loses_nothing(
        self, harm: Harm, form: str, seconds: float | None
    ) -> None:
        """Every event is handled. None becomes a dead letter because of another call."""
        policy = FailurePolicy(3, AT_ONCE, timeout_seconds=seconds)
        letters = MemoryDeadLetters()
        harmful = Harmful(harm, lambda call: call in (2, 9))
        watching = watching_of(harmful.handler(form, policy), letters)
        async with watching.run():
            await until(lambda: set(harmful.handled) == set(range(1, EVENTS + 1)))
            await until(lambda: watching.watcher.status.watermark.empty)  # type: ignore[union-attr]
        assert watching.watcher.status.state is WatcherState.STOPPED
        assert harmful.twice == []
        assert_in_order(harmful.handled)
        assert await letters.letters() == []
        assert watching.position.cluster_time == time(EVENTS)

    async def test_a_handler_that_cancels_tasks_at_every_call_is_slower_but_goes_on(
        self, harm: Harm, form: str, seconds: float | None
    ) -> None:
        """Each event is handled or becomes a dead letter; the scope is slower but goes on."""
        policy = FailurePolicy(2, AT_ONCE, timeout_seconds=seconds)
        letters = MemoryDeadLetters()
        harmful = Harmful(harm, lambda call: True)
        watching = watching_of(harmful.handler(form, policy), letters)
        async with watching.run():
            await watching.until_handled(time(EVENTS))
        assert watching.watcher.status.state is WatcherState.STOPPED
        assert harmful.twice == []
        assert_in_order(harmful.handled)
        assert {*await set_aside(letters), *harmful.handled} == set(range(1, EVENTS + 1))


def cancels(*names: str) -> Harm:
    """Cancels the tasks with these names, except its own."""

    async def harm() -> None:
        for one in asyncio.all_tasks():
            if one.get_name() in names and one is not task():
                one.cancel()
        await anyio.lowlevel.checkpoint()

    return harm


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["beside harmful worker 1", "lanes of harmful", "checkpointer", "watcher orders"]
)
# The unraisable warning comes from a task that was cancelled before its first step.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_task_that_a_handler_finds_and_cancels_is_missed(form: str, name: str) -> None:
    """The run ends with an error and restarts from its checkpoint: nothing is lost."""
    harmful = Harmful(cancels(name), lambda call: call == 3)
    watching = watching_of(harmful.handler(form, FailurePolicy(3, AT_ONCE)), MemoryDeadLetters())
    async with running(supervisor_of(watching)) as logs:
        await until(lambda: set(harmful.handled) == set(range(1, EVENTS + 1)))
        await until(lambda: watching.watcher.status.watermark.empty)  # type: ignore[union-attr]
    assert watching.watcher.status.state is WatcherState.STOPPED
    assert harmful.twice == []
    assert_in_order(harmful.handled)
    assert watching.counted("watcher_restarts_total", reason="cancelled") == 1
    assert "was cancelled, and not by this service" in watching.last_error
    assert [log for log in logs if log["event"] == "watcher.restarting"]


async def test_a_watcher_that_is_cancelled_between_two_runs_goes_on() -> None:
    destination = Destination()
    driver = ScriptedDriver(*(change(n) for n in range(1, 4)))
    driver.refusals.append(disconnected())
    watching = Watching(driver, destination.routed(), backoff=NEVER)
    async with running(supervisor_of(watching)) as logs:
        await watching.until_state(WatcherState.BACKING_OFF)
        await cancels("watcher orders")()
        await until(lambda: destination.handled == [1, 2, 3])
    (cancelled,) = [log for log in logs if log["event"] == "watcher.cancelled"]
    assert (cancelled["scope"], cancelled["log_level"]) == ("orders", "error")


async def test_a_worker_that_is_lost_twice_with_one_event_ends_the_run() -> None:
    """Another worker takes the event once. Then the run ends, with a delay and a reason."""
    killed: list[str] = []

    async def kills(event: ChangeEvent) -> None:
        for one in asyncio.all_tasks():
            if one.get_name().startswith("harmful worker"):
                killed.append(one.get_name())
                one.cancel()
        await anyio.sleep_forever()

    routed = Routed(handler("harmful", kills, concurrency=1))
    async with Watching(ScriptedDriver(change(1)), routed, backoff=NEVER).run() as watching:
        await watching.until_state(WatcherState.BACKING_OFF)
        assert "the task that calls it was cancelled" in watching.reason
    assert len(killed) == 2
    assert [log["consequence"] for log in watching.logs if "consequence" in log] == [
        "another task continues",
        "the scope starts again",
    ]
    named = [log for log in watching.logs if log["event"] == "handler.task_cancelled"]
    assert {log["document_key"] for log in named} == {'{"_id": 1}'}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_workers_that_are_cancelled_before_they_have_begun_end_the_run() -> None:
    """Each call cancels all workers and the tasks beside them; the scope never stands still."""

    async def kills(event: ChangeEvent) -> None:
        for one in asyncio.all_tasks():
            if "harmful worker" in one.get_name():
                one.cancel()
        await anyio.sleep_forever()

    routed = Routed(handler("harmful", kills, concurrency=8))
    changes = [change(n, key=n) for n in range(1, EVENTS + 1)]
    async with Watching(ScriptedDriver(*changes), routed, backoff=NEVER).run() as watching:
        await watching.until_state(WatcherState.BACKING_OFF)
        assert "was cancelled" in watching.reason
        assert "handler 'harmful'" in watching.reason
    gc.collect()  # coroutines that never started warn here, not in another test


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
async def test_a_handler_that_damages_its_task_when_asked_for_its_position_is_asked_again(
    harm: Harm,
) -> None:
    """Other calls of a handler also run in a task of their own."""
    harms = [harm]

    async def position(owner: object) -> SinkPosition | None:
        if harms:
            await harms.pop()()
        return None

    destination = Destination()
    driver = ScriptedDriver(*(change(n) for n in range(1, 9)))
    routed = destination.routed_by_batch(position=position)
    async with Watching(driver, routed).run() as watching:
        await until(lambda: destination.handled == list(range(1, 9)))
    assert watching.watcher.status.state is WatcherState.STOPPED
