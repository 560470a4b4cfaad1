"""A destination that is down is waited for where it is: in its handler's lane."""

import errno
import socket
from dataclasses import replace
from datetime import UTC, datetime

import anyio
import pytest

from tailrace import Unavailable
from tailrace.engine import Routed, WatcherState
from tailrace.engine.handle import destination_position
from tailrace.engine.handle.outage import is_outage
from tailrace.model import SinkPosition
from tailrace.model.desired_state import DesiredState
from tailrace.model.failure_policy import FailurePolicy
from tailrace.stores.memory import MemoryDeadLetters
from tests.handlers import handler
from tests.unit.engine.changes import change, changes, token, until
from tests.unit.engine.database import Database, down
from tests.unit.engine.scripted_driver import ScriptedDriver, disconnected
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import NEVER, Destination, Watching

_DELAYED = "handler.answer_delayed"


@pytest.mark.parametrize("form", ["event", "events", "position"])
async def test_an_outage_costs_neither_an_attempt_nor_a_dead_letter_nor_the_other_handler(
    form: str,
) -> None:
    """The cursor stays open, and the events come in order when the destination is back."""
    database, audit, letters = Database(), Destination(), MemoryDeadLetters()
    driver = ScriptedDriver(*changes(1, 10, key="one"), batch_size=3)
    watching = Watching(driver, database.routed(form), audit.routed(), letters=letters)
    async with watching.run():
        await until(lambda: len(database.stored) == 9)
        database.error = down()
        driver.oplog += changes(10, 15, key="one")
        await until(lambda: len(audit.handled) == 14)
        await until(lambda: len(database.calls) > 20 or database.begun > 20)
        assert watching.watcher.status.state is WatcherState.WAITING
        assert "handler 'table'" in watching.reason
        assert "the database restarts" in watching.reason
        assert watching.counted("destination_up", handler="table") == 0
        assert watching.counted("destination_up", handler="audit") == 1
        database.error = None
        await until(lambda: len(database.stored) == 14)
        await watching.until_state(WatcherState.CAUGHT_UP)
        assert watching.counted("destination_up", handler="table") == 1
    assert database.stored == list(range(1, 15))
    assert await letters.letters() == []
    assert watching.counted("events_handled_total", handler="table", outcome="error") == 0
    assert watching.counted("handler_retries_total", handler="table") == 0
    assert len(driver.starts) == 1
    reports = [log["event"] for log in watching.logs if log["event"].startswith("destination.")]
    assert reports == ["destination.unavailable", "destination.recovered"]


async def test_a_stop_in_an_outage_ends_at_once_and_the_events_come_again() -> None:
    database, letters = Database(), MemoryDeadLetters()
    database.error = down(after=3600)
    driver = ScriptedDriver(*changes(1, 5))
    async with Watching(driver, database.routed(), letters=letters).run() as watching:
        await until(lambda: len(database.calls) == 4)
    assert watching.watcher.status.state is WatcherState.STOPPED
    database.error = None
    async with Watching(driver, database.routed(), store=watching.store).run():
        await until(lambda: len(database.stored) == 4)
    assert await letters.letters() == []


@pytest.mark.parametrize("stored", [[], [1, 2]], ids=["as noted", "beyond the checkpoint"])
async def test_a_destination_that_is_down_at_the_start_keeps_no_other_handler_waiting(
    stored: list[int],
) -> None:
    """What it has stored beyond the checkpoint, before a crash, is found out when it is back."""
    database, audit = Database(), Destination()
    database.stored, database.error = list(stored), down()
    driver = ScriptedDriver(*changes(1, 5))
    async with Watching(driver, database.routed("position"), audit.routed()).run() as watching:
        await until(lambda: audit.handled == [1, 2, 3, 4])
        await until(lambda: database.begun > 5)
        assert watching.watcher.status.state is WatcherState.WAITING
        assert database.calls == []
        database.error = None
        await until(lambda: database.stored == [1, 2, 3, 4])
    assert audit.handled == [1, 2, 3, 4]
    assert len(driver.starts) == (2 if stored else 1)
    restarts = [log["error"] for log in watching.logs if log["event"] == "watcher.restarting"]
    assert ["was down when the scope started" in each for each in restarts] == [True] * bool(stored)


async def test_a_destination_that_was_down_for_an_earlier_run_is_not_shown_as_down() -> None:
    """The run that found it down ended before its stream was open."""
    database = Database()
    database.error = down()
    driver = ScriptedDriver(*changes(1, 3))
    driver.refusals = [disconnected()]
    async with Watching(driver, database.routed("position"), backoff=NEVER).run() as watching:
        await watching.until_state(WatcherState.BACKING_OFF)
        database.error = None
        watching.watcher.apply(DesiredState("orders", 1, False, "ann", datetime.now(UTC)))
        await until(lambda: database.stored == [1, 2])
        await watching.until_state(WatcherState.CAUGHT_UP)


async def test_a_destination_that_was_down_only_at_the_start_is_not_shown_as_down() -> None:
    """It answers before the first event comes, so no call waits for it."""
    database = Database()
    database.error = down()
    driver = ScriptedDriver()
    async with Watching(driver, database.routed("position")).run() as watching:
        await until(lambda: database.begun > 0)
        database.error = None
        driver.oplog.append(change(1))
        await until(lambda: database.stored == [1])
        await watching.until_state(WatcherState.CAUGHT_UP)


async def test_a_chosen_position_waits_alone_for_a_destination_that_is_down() -> None:
    """It must be noted beside the destination's own, which it replaces; another handler goes on."""
    database, audit = Database(), Destination()
    driver = ScriptedDriver(*changes(1, 5))
    routed = database.routed("position"), audit.routed()
    async with Watching(driver, *routed).run() as first:
        await until(lambda: database.stored == audit.handled == [1, 2, 3, 4])
        await first.until_state(WatcherState.CAUGHT_UP)
    chosen = {"event_token": token(2), "high_water": token(2), "chosen": True}
    before = first.store.records["orders"]
    position = replace(before.position, **chosen)
    store = ScriptedStore(replace(before, position=position, handlers=(), apart={}))
    database.error = down()
    async with Watching(driver, *routed, store=store).run() as second:
        await until(lambda: database.begun > 5 and audit.handled == [1, 2, 3, 4, 3, 4])
        assert database.stored == [1, 2, 3, 4]
        database.error = None
        await until(lambda: database.stored == [1, 2, 3, 4, 3, 4])
        await second.until_state(WatcherState.CAUGHT_UP)
    assert audit.handled == [1, 2, 3, 4, 3, 4]


async def test_a_destination_that_does_not_answer_for_its_position_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call without an end is neither an outage nor an error, and a stop ends it."""
    monkeypatch.setattr(destination_position, "SLOW_SECONDS", 0.0)

    async def never(identity: object) -> SinkPosition | None:
        await anyio.sleep_forever()
        return None

    routed = Routed(handler("table", on_events=Database().on_events, position=never))
    async with Watching(ScriptedDriver(*changes(1, 5)), routed).run() as watching:
        await until(lambda: [log for log in watching.logs if log["event"] == _DELAYED])
    (reported,) = [log for log in watching.logs if log["event"] == _DELAYED]
    assert (reported["scope"], reported["handler"]) == ("orders", "table")
    assert watching.watcher.status.state is WatcherState.STOPPED


async def test_a_stop_ends_the_wait_at_the_start() -> None:
    database = Database()
    database.error = down(after=3600)
    watching = Watching(ScriptedDriver(*changes(1, 5)), database.routed("position"))
    async with watching.run():
        await until(lambda: database.begun > 0)
    assert watching.watcher.status.state is WatcherState.STOPPED
    assert "watcher.restarting" not in [log["event"] for log in watching.logs]


async def test_a_handler_that_is_not_open_yet_is_waited_for_even_without_an_event() -> None:
    """So that the state names it, and not only the first event that cannot be delivered."""
    database = Database()
    database.error = down()

    async def ready(identity: object) -> None:
        database.begun += 1
        if database.error is not None:
            raise database.error

    closed = replace(database.routed().handler, ready=ready)
    async with Watching(ScriptedDriver(), Routed(closed)).run() as watching:
        await until(lambda: database.begun > 5)
        assert watching.watcher.status.state is WatcherState.WAITING
        assert "the database restarts" in watching.reason
        database.error = None
        await watching.until_state(WatcherState.CAUGHT_UP)
        database.error = down(after=3600)
    async with Watching(ScriptedDriver(), Routed(closed)).run() as again:
        await again.until_state(WatcherState.WAITING)
    assert again.watcher.status.state is WatcherState.STOPPED


async def test_waiting_calls_are_tried_as_soon_as_one_gets_an_answer() -> None:
    """The others would wait for an hour."""
    database = Database()
    database.error = down(after=3600)
    async with Watching(ScriptedDriver(*changes(1, 5)), database.routed()).run() as watching:
        await until(lambda: len(database.calls) == 4)
        database.error = down(after=0)
        watching.driver.oplog.append(change(5))
        await until(lambda: len(database.calls) > 10)
        database.error = None
        await until(lambda: sorted(database.stored) == [1, 2, 3, 4, 5])


OUTAGES = [
    Unavailable(),
    ConnectionRefusedError(),
    BrokenPipeError(),
    TimeoutError(),
    socket.gaierror(-2, "Name or service not known"),
    OSError(errno.EHOSTUNREACH, "No route to host"),
    OSError("Multiple exceptions: [Errno 111] Connect call failed"),
    OSError("All connection attempts failed"),
    ExceptionGroup("two", [ConnectionResetError(), TimeoutError()]),
]
ATTEMPTS = [
    RuntimeError(),
    OSError(errno.ENOSPC, "No space left"),
    FileNotFoundError(),
    ExceptionGroup("two", [ConnectionResetError(), ValueError()]),
]


@pytest.mark.parametrize("error", [*OUTAGES, *ATTEMPTS], ids=repr)
def test_pythons_connection_errors_are_outages_and_other_errors_are_attempts(
    error: BaseException,
) -> None:
    assert is_outage(error) is (error in OUTAGES)


def test_the_configuration_may_name_more_outages() -> None:
    assert is_outage(KeyError("x"), (LookupError,))
    assert not is_outage(KeyError("x"), (ValueError,))


async def test_an_attempt_that_exceeds_timeout_seconds_is_not_an_outage() -> None:
    """An event that always takes too long would block its lane for ever."""
    letters, audit = MemoryDeadLetters(), Destination()
    audit.held = {1}
    limit = FailurePolicy(attempts=1, timeout_seconds=0.001)
    driver = ScriptedDriver(*changes(1, 3))
    async with Watching(driver, audit.routed(failure=limit), letters=letters).run() as watching:
        await until(lambda: audit.handled == [2])
        await watching.until_state(WatcherState.CAUGHT_UP)
    (letter,) = await letters.letters()
    assert "the call did not end within its timeout_seconds (0.001 s)" in letter.error


async def test_a_position_that_moved_in_mid_run_starts_the_scope_again_from_there() -> None:
    """Otherwise the retry would be stored on top of what another process wrote."""
    database = Database()
    driver = ScriptedDriver(*changes(1, 4))
    async with Watching(driver, database.routed("position")).run() as watching:
        await until(lambda: database.stored == [1, 2, 3])
        await watching.until_state(WatcherState.CAUGHT_UP)
        database.stored, database.error = [1], down()  # restored from a backup, and then started
        driver.oplog.append(change(4))
        await until(lambda: len(database.calls) > 1)
        database.error = None
        await until(lambda: database.stored == [1, 2, 3, 4])
    assert "the position of handler 'table' changed during the run" in watching.last_error
