"""What a watcher survives: it restarts from its checkpoint, and no event is lost."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.engine import WatcherState
from tailrace.errors import DriverError
from tailrace.model import PositionKind
from tailrace.model.failure_policy import Backoff
from tests.unit.engine.changes import change, changes, ddl, settle, token, until
from tests.unit.engine.scripted_driver import ScriptedDriver, disconnected, refused, resumable
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import NEVER, Destination, Watching


def restarts(watching: Watching, reason: str) -> float:
    return watching.counted("watcher_restarts_total", reason=reason)


async def test_a_handler_failure_is_followed_by_a_run_that_delivers_everything() -> None:
    audit = Destination("audit")
    audit.failures[5] = 1
    driver = ScriptedDriver(*changes(1, 30, "one document"))
    async with Watching(driver, audit.routed()).run() as watching:
        await until(lambda: 29 in audit.handled)
    entered = [state for state in watching.states if state != "caught_up"]
    assert entered[:4] == ["catching_up", "streaming", "draining", "waiting"]
    assert watching.states.count("waiting") == 1
    # Handled events do not come again, in whatever reply they came.
    assert audit.handled == list(range(1, 30))
    assert driver.start_options == ["at 1", "resume after 4"]
    assert restarts(watching, "destination") == 1
    assert watching.watcher.status.counts.restarts == 1
    assert "event 5" in watching.last_error
    assert watching.budget.used == 0


@settings(deadline=None, max_examples=25)
@given(
    st.dictionaries(st.integers(1, 40), st.integers(1, 2), max_size=6),
    st.dictionaries(st.integers(0, 40), st.sampled_from(["resumable", "fatal", "network"])),
    st.integers(0, 3),
    st.integers(1, 7),
    st.sets(st.integers(1, 40), max_size=3),
)
async def test_no_event_is_lost_whatever_fails(
    failing: dict[int, int],
    faults: dict[int, str],
    failing_saves: int,
    batch_size: int,
    barriers: set[int],
) -> None:
    """Handlers, getMores and saves fail at random; every handler handles each event."""
    errors: dict[str, Callable[[], DriverError]] = {
        "resumable": resumable,
        "network": disconnected,
        "fatal": partial(refused, 1),
    }
    oplog = [ddl(n) if n in barriers else change(n, n % 5) for n in range(1, 41)]
    driver = ScriptedDriver(*oplog, batch_size=batch_size)
    for n, kind in faults.items():
        driver.faults[n] = [errors[kind]()]
    audit, lake, table = Destination("audit"), Destination("lake"), Destination("table")
    audit.failures.update(failing)
    table.failures.update(failing)
    store = ScriptedStore()
    store.failing = failing_saves
    handlers = [audit.routed(), lake.routed_by_batch(10), table.routed_by_batch(4, by_key=3)]
    async with Watching(driver, *handlers, store=store, checkpoint_seconds=0).run() as watching:
        for each in (audit, lake, table):
            await until(lambda each=each: set(each.handled) == set(range(1, 41)))  # type: ignore[misc]
        last = token(40)
        await until(lambda: watching.saved and watching.saved.position.event_token == last)
    for handled, key in product([audit.handled, table.handled], range(5)):
        # In order: the first handling of an event comes after that of its document's earlier ones.
        first_times = list(dict.fromkeys(n for n in handled if n % 5 == key))
        assert first_times == sorted(first_times)
    orders = [checkpoint.version for checkpoint in store.saved]
    assert orders == sorted(set(orders))
    assert (watching.budget.used, driver.cancelled_reads) == (0, 0)
    assert driver.sessions == 0


@pytest.mark.parametrize("error", [refused(237), refused(11600)])
async def test_an_error_that_no_stream_resumes_from_starts_a_new_run(error: Any) -> None:
    audit, driver = Destination(), ScriptedDriver(*changes(1, 10))
    driver.faults[6] = [error]
    async with Watching(driver, audit.routed()).run() as watching:
        await until(lambda: len(audit.handled) == 9)
    assert sorted(audit.begun) == list(range(1, 10))
    assert driver.start_options == ["at 1", "resume after 6"]
    assert restarts(watching, "stream") == 1


async def test_the_error_of_a_stream_is_the_reason_while_the_next_run_starts() -> None:
    """An outage is shown as one state, and not alternately as a start and a failure."""
    watching = Watching(ScriptedDriver(change(1)), Destination().routed())
    watching.driver.refusals = [disconnected()]
    async with watching.run():
        await until(lambda: watching.states.count("backing_off") == 1)
        watching.driver.hanging = anyio.Event()
        await watching.until_state(WatcherState.STARTING)
        assert watching.reason == "connection closed"
        watching.driver.hanging.set()
        await watching.until_state(WatcherState.CAUGHT_UP)
        assert watching.reason == ""


async def test_a_save_whose_answer_was_lost_does_not_fence_the_watcher_out() -> None:
    audit, store = Destination(), ScriptedStore()
    store.lying = 2
    driver = ScriptedDriver(*changes(1, 4))
    watching = Watching(driver, audit.routed(), store=store, checkpoint_seconds=0)
    async with watching.run():
        await until(lambda: len(store.saved) >= 2)
        driver.oplog.append(change(4))
        await until(lambda: 4 in audit.handled)
    assert "halted" not in watching.states
    assert watching.position.event_token == token(4)


async def test_a_back_off_is_ended_by_a_stop() -> None:
    driver = ScriptedDriver(change(1))
    driver.refusals = [disconnected()]
    async with Watching(driver, backoff=NEVER).run() as watching:
        await watching.until_state(WatcherState.BACKING_OFF)
        await settle()
        assert watching.reason == "connection closed"
    assert watching.states == ["backing_off", "stopped"]
    assert len(driver.starts) == 1


async def test_a_back_off_grows_without_progress_and_starts_over_after_progress() -> None:
    audit, driver = Destination(), ScriptedDriver(*changes(1, 7))
    audit.failures.update({2: 4, 5: 2})
    async with Watching(driver, audit.routed(), backoff=Backoff(0.002, 0.1)).run() as watching:
        await until(lambda: 6 in audit.handled)
    delays = [log["delay_seconds"] for log in watching.logs if log["event"] == "watcher.restarting"]
    assert len(delays) == 6
    assert delays[:4] == sorted(delays[:4])
    assert delays[3] >= 0.008
    # Events 1 to 3 are before the checkpoint now, so event 5 is another failure.
    assert delays[4] <= 0.002


async def test_a_store_that_was_put_back_beneath_the_process_does_not_lead_it_back() -> None:
    """As a store beside the source does, when that is restored from a backup."""
    audit, driver = Destination(), ScriptedDriver(*changes(1, 4))
    async with Watching(driver, audit.routed(), checkpoint_seconds=0).run() as watching:
        await until(lambda: watching.saved is not None and watching.saved.sequence > 0)
        backup = watching.saved
        assert backup is not None
        driver.oplog += changes(4, 8)
        await until(lambda: watching.position.event_token == token(7))
        await until(lambda: watching.position.kind is PositionKind.IDLE)
        watching.store.records[backup.scope] = backup
        audit.failures[8] = 1
        driver.oplog += changes(8, 9)
        await until(lambda: 8 in audit.handled)
    assert audit.handled == [*range(1, 9)]
    assert [log["event"] for log in watching.logs].count("checkpoint.went_back") == 1
