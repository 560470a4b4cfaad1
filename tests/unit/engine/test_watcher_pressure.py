"""How a watcher behaves if its handlers are slower than the server."""

import pytest

from tailrace.engine import ByteBudget, Runtime, WatcherState
from tailrace.engine.read import read_limit
from tailrace.model import Scope
from tailrace.observe.metrics import Metrics
from tailrace.stores.memory import MemoryDeadLetters, MemoryDesiredStates
from tests.unit.engine.changes import batch, change, changes, settle, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import CLUSTER, Destination, Watching

SIZE = batch([change(1)]).size
"""The bytes of one event in a reply."""


async def test_a_spent_byte_budget_pauses_reading_until_the_handler_has_finished() -> None:
    slow = Destination("slow")
    slow.held = {1}
    driver = ScriptedDriver(*changes(1, 40), batch_size=1)
    watching = Watching(driver, slow.routed(), budget=5 * SIZE)
    async with watching.run():
        await watching.until_state(WatcherState.WAITING)
        await settle()
        assert watching.budget.used == 5 * SIZE
        assert (
            watching.metrics.registry.get_sample_value(
                "tailrace_in_flight_bytes", {"scope": "orders"}
            )
            == 5 * SIZE
        )
        assert sorted(slow.begun) == [1, 2, 3, 4, 5]
        slow.held = set()
        await until(lambda: len(slow.handled) == 39)
        await watching.until_state(WatcherState.CAUGHT_UP)
        assert watching.budget.used == 0
    assert watching.states[:4] == ["catching_up", "streaming", "waiting", "streaming"]


async def test_one_reply_is_read_ahead_and_a_long_wait_for_handlers_is_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server is not silent: liveness would end a process that only has a slow destination."""
    monkeypatch.setattr(read_limit, "_PATIENCE_SECONDS", 0)
    audit = Destination()
    audit.held = {1}
    driver = ScriptedDriver(*changes(1, 40), batch_size=2)
    async with Watching(driver, audit.routed(concurrency=1)).run() as watching:
        await watching.until_state(WatcherState.WAITING)
        await settle()
        assert audit.begun == [1]
        # One reply is being handled, one is ready, and the reader holds one.
        assert watching.counted("events_total", operation="insert") <= 6
        audit.held = set()
        await until(lambda: len(audit.handled) == 39)
        await watching.until_state(WatcherState.CAUGHT_UP)


def runtime_with(budget: ByteBudget) -> Runtime:
    """The parts that two scopes share."""
    metrics = Metrics(state.value for state in WatcherState)
    letters, orders = MemoryDeadLetters(), MemoryDesiredStates()
    return Runtime(ScriptedDriver(), ScriptedStore(), letters, orders, CLUSTER, budget, metrics)


@pytest.mark.parametrize("events_a_reply", [1, 2, 20])
async def test_a_scope_that_stalls_does_not_keep_another_from_reading(events_a_reply: int) -> None:
    """However large its replies are: 20 events do not fit into the whole budget."""
    runtime = runtime_with(ByteBudget(8 * SIZE, shares=2))
    stalled, other = Destination("stalled"), Destination("other")
    stalled.held = {1}
    first = Watching(
        ScriptedDriver(*changes(1, 90), batch_size=events_a_reply),
        stalled.routed(concurrency=1),
        runtime=runtime,
    )
    second = Watching(
        ScriptedDriver(*changes(1, 90), batch_size=events_a_reply),
        other.routed(),
        runtime=runtime,
        scope=Scope("users", "shop", "users"),
    )
    async with first.run():
        await first.until_state(WatcherState.WAITING)
        async with second.run():
            await until(lambda: len(other.handled) == 89)
            await second.until_state(WatcherState.CAUGHT_UP)
        assert stalled.handled == []
        assert first.watcher.status.state is WatcherState.WAITING
        stalled.held = set()
        await until(lambda: len(stalled.handled) == 89)
    assert runtime.budget.used == 0
