"""A destination that is down is waited for where it is: in its handler's lane."""

import errno
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from tailrace import Fenced, Refused, Unavailable
from tailrace.engine import Routed, WatcherState
from tailrace.engine.handle import destination_position
from tailrace.engine.handle.outage import is_outage
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.model.position import CHOSEN
from tailrace.stores.memory import MemoryDeadLetters
from tests.handlers import handler
from tests.unit.engine.changes import change, changes, number, token, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import START, Destination, Watching

_DELAYED = "handler.answer_delayed"
AT_ONCE = FailurePolicy(attempts=2, backoff=Backoff(0, 0))


class Database:
    """A destination that answers with ``error`` while it has one; else it stores batches."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.calls: list[list[int]] = []
        self.stored: list[int] = []
        self.begun = 0

    async def on_event(self, event: ChangeEvent) -> None:
        await self.on_events([event])

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        self.calls.append([number(event) for event in events])
        if self.error is not None:
            raise self.error
        self.stored += self.calls[-1]

    async def position(self, identity: object) -> SinkPosition | None:
        self.begun += 1
        if self.error is not None:
            raise self.error
        return SinkPosition(token(self.stored[-1])) if self.stored else None

    def routed(self, form: str = "event", **fields: Any) -> Routed:
        calls = {"on_event": self.on_event} if form == "event" else {"on_events": self.on_events}
        position = {"position": self.position} if form == "position" else {}
        fields = {"failure": AT_ONCE} | fields
        return Routed(handler("table", **calls, **position, **fields))


def down(after: float = 0.0) -> Unavailable:
    return Unavailable("the database restarts", retry_after=after)


@pytest.mark.parametrize("form", ["event", "events", "position"])
async def test_an_outage_costs_neither_an_attempt_nor_a_dead_letter_nor_the_other_handler(
    form: str,
) -> None:
    """The cursor stays open, and the events come in order when the destination is back."""
    database, audit, letters = Database(), Destination(), MemoryDeadLetters()
    driver = ScriptedDriver(*changes(1, 10, key="one"), batch_size=3)
    watching = Watching(driver, database.routed(form), audit.routed(), letters=letters, **START)
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
    told = [log["event"] for log in watching.logs if log["event"].startswith("destination.")]
    assert told == ["destination.unavailable", "destination.recovered"]


async def test_a_stop_in_an_outage_ends_at_once_and_the_events_come_again() -> None:
    database, letters = Database(), MemoryDeadLetters()
    database.error = down(after=3600)
    driver = ScriptedDriver(*changes(1, 5))
    watching = Watching(driver, database.routed(), letters=letters, **START)
    async with watching.run():
        await until(lambda: len(database.calls) == 4)
    assert watching.watcher.status.state is WatcherState.STOPPED
    database.error = None
    async with Watching(driver, database.routed(), store=watching.store, **START).run():
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
    watching = Watching(driver, database.routed("position"), audit.routed(), **START)
    async with watching.run():
        await until(lambda: audit.handled == [1, 2, 3, 4])
        await until(lambda: database.begun > 5)
        assert watching.watcher.status.state is WatcherState.WAITING
        assert database.calls == []
        database.error = None
        await until(lambda: database.stored == [1, 2, 3, 4])
    assert audit.handled == [1, 2, 3, 4]
    assert len(driver.starts) == (2 if stored else 1)
    assert ("was down when the scope started" in watching.last_error) is bool(stored)


async def test_a_chosen_position_waits_for_a_destination_that_is_down() -> None:
    """It must be noted beside the destination's own, which it replaces."""
    database, audit = Database(), Destination()
    driver = ScriptedDriver(*changes(1, 5))
    routed = database.routed("position"), audit.routed()
    async with (first := Watching(driver, *routed, **START)).run():
        await until(lambda: database.stored == audit.handled == [1, 2, 3, 4])
        await first.until_state(WatcherState.CAUGHT_UP)
    chosen = {"event_token": token(2), "high_water": token(2), "sink_digests": {CHOSEN: ""}}
    before = first.store.records["orders"]
    position = replace(before.position, **chosen)
    store = ScriptedStore(replace(before, position=position))
    database.error = down()
    async with (second := Watching(driver, *routed, store=store, **START)).run():
        await until(lambda: database.begun > 5)
        assert driver.starts == first.driver.starts
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
    watching = Watching(ScriptedDriver(*changes(1, 5)), routed, **START)
    async with watching.run():
        await until(lambda: [log for log in watching.logs if log["event"] == _DELAYED])
    (told,) = [log for log in watching.logs if log["event"] == _DELAYED]
    assert (told["scope"], told["handler"]) == ("orders", "table")
    assert watching.watcher.status.state is WatcherState.STOPPED


async def test_a_stop_ends_the_wait_at_the_start() -> None:
    database = Database()
    database.error = down(after=3600)
    watching = Watching(ScriptedDriver(*changes(1, 5)), database.routed("position"), **START)
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
    watching = Watching(ScriptedDriver(), Routed(closed), **START)
    async with watching.run():
        await until(lambda: database.begun > 5)
        assert watching.watcher.status.state is WatcherState.WAITING
        assert "the database restarts" in watching.reason
        database.error = None
        await watching.until_state(WatcherState.CAUGHT_UP)
        database.error = down(after=3600)
    again = Watching(ScriptedDriver(), Routed(closed), **START)
    async with again.run():
        await again.until_state(WatcherState.WAITING)
    assert again.watcher.status.state is WatcherState.STOPPED


async def test_waiting_calls_are_tried_as_soon_as_one_gets_an_answer() -> None:
    """The others would wait for an hour."""
    database = Database()
    database.error = down(after=3600)
    watching = Watching(ScriptedDriver(*changes(1, 5)), database.routed(), **START)
    async with watching.run():
        await until(lambda: len(database.calls) == 4)
        database.error = down(after=0)
        watching.driver.oplog.append(change(5))
        await until(lambda: len(database.calls) > 10)
        database.error = None
        await until(lambda: sorted(database.stored) == [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    "error",
    [
        Unavailable(),
        ConnectionRefusedError(),
        BrokenPipeError(),
        TimeoutError(),
        socket.gaierror(-2, "Name or service not known"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        OSError("Multiple exceptions: [Errno 111] Connect call failed"),
        OSError("All connection attempts failed"),
        ExceptionGroup("two", [ConnectionResetError(), TimeoutError()]),
    ],
    ids=repr,
)
def test_pythons_connection_errors_are_outages(error: BaseException) -> None:
    assert is_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(),
        OSError(errno.ENOSPC, "No space left"),
        FileNotFoundError(),
        ExceptionGroup("two", [ConnectionResetError(), ValueError()]),
    ],
    ids=repr,
)
def test_other_errors_are_attempts(error: BaseException) -> None:
    assert not is_outage(error)


def test_the_configuration_may_name_more_outages() -> None:
    assert is_outage(KeyError("x"), (LookupError,))
    assert not is_outage(KeyError("x"), (ValueError,))


async def test_an_attempt_that_exceeds_timeout_seconds_is_not_an_outage() -> None:
    """An event that always takes too long would block its lane for ever."""
    letters, audit = MemoryDeadLetters(), Destination()
    audit.held = {1}
    limit = FailurePolicy(attempts=1, timeout_seconds=0.001)
    driver = ScriptedDriver(*changes(1, 3))
    watching = Watching(driver, audit.routed(failure=limit), letters=letters, **START)
    async with watching.run():
        await until(lambda: audit.handled == [2])
        await watching.until_state(WatcherState.CAUGHT_UP)
    (letter,) = await letters.letters()
    assert "the call did not end within its timeout_seconds (0.001 s)" in letter.error


class Refusing(Database):
    """Refuses the events in ``odd``, and then stores nothing of their batch."""

    def __init__(self, *odd: int) -> None:
        super().__init__()
        self.odd = set(odd)

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        numbers = [number(event) for event in events]
        refused = {at: "it is odd" for at, n in enumerate(numbers) if n in self.odd}
        if refused:
            self.calls.append(numbers)
            raise Refused(refused)
        await super().on_events(events)


async def set_aside(letters: MemoryDeadLetters) -> list[tuple[int, str]]:
    found = await letters.letters()
    return [(number(ChangeEvent.from_raw(each.raw)), each.error) for each in found]


@pytest.mark.parametrize("form", ["events", "position"])
async def test_only_refused_events_become_dead_letters_without_another_attempt(form: str) -> None:
    """Later events of the same key follow; an earlier one of that key is stored."""
    keys = {1: "a", 2: "b", 3: "a", 4: "a", 5: "b"}
    driver = ScriptedDriver(*(change(n, key) for n, key in keys.items()), batch_size=5)
    database, letters = Refusing(3), MemoryDeadLetters()
    watching = Watching(driver, database.routed(form), letters=letters, **START)
    async with watching.run():
        await until(lambda: database.stored == [1, 2, 5])
        await watching.until_state(WatcherState.CAUGHT_UP)
        driver.oplog += [change(6, "a"), change(7, "c")]
        await until(lambda: database.stored == [1, 2, 5, 7])
        await watching.until_state(WatcherState.CAUGHT_UP)
    assert await set_aside(letters) == [
        (3, "the destination refuses it: it is odd"),
        (4, ""),
        (6, ""),
    ]
    assert database.calls[:2] == [[1, 2, 3, 4, 5], [1, 2, 5]]


@pytest.mark.parametrize("reasons", [{}, {9: "no such event"}, {-1: "x"}, {True: "x"}])
async def test_reasons_about_no_event_of_the_batch_are_an_ordinary_failure(
    reasons: dict[int, str],
) -> None:
    database, letters = Database(), MemoryDeadLetters()
    database.error = Refused(reasons)
    driver = ScriptedDriver(*changes(1, 3))
    watching = Watching(driver, database.routed("events"), letters=letters, **START)
    async with watching.run():
        await until(lambda: len(database.calls) == 4)  # two of the batch, one of each event
        await watching.until_state(WatcherState.CAUGHT_UP)
    assert len(await letters.letters()) == 2


async def test_a_refusal_halts_a_handler_that_may_not_make_dead_letters() -> None:
    database = Refusing(2)
    routed = database.routed("position", failure=FailurePolicy(halt=True))
    watching = Watching(ScriptedDriver(*changes(1, 4)), routed, **START)
    await watching.to_the_end()
    assert watching.watcher.status.state is WatcherState.HALTED
    assert "the destination refuses it: it is odd" in watching.reason
    assert database.stored == [1, 3]


@pytest.mark.parametrize("form", ["event", "events", "position"])
async def test_a_handler_that_is_fenced_gives_the_scope_up(form: str) -> None:
    database, letters = Database(), MemoryDeadLetters()
    driver = ScriptedDriver(*changes(1, 4))
    watching = Watching(driver, database.routed(form), letters=letters, **START)
    async with watching.run(stop=False):
        await until(lambda: len(database.stored) == 3)
        database.error = Fenced("epoch 8 writes here")
        driver.oplog.append(change(4))
    assert watching.watcher.fenced
    assert "handler 'table' was fenced by its destination" in watching.reason
    assert "epoch 8 writes here" in watching.reason
    assert await letters.letters() == []


async def test_a_position_that_moved_in_mid_run_starts_the_scope_again_from_there() -> None:
    """Otherwise the retry would be stored on top of what another process wrote."""
    database = Database()
    driver = ScriptedDriver(*changes(1, 4))
    watching = Watching(driver, database.routed("position"), **START)
    async with watching.run():
        await until(lambda: database.stored == [1, 2, 3])
        await watching.until_state(WatcherState.CAUGHT_UP)
        database.stored, database.error = [1], down()  # restored from a backup, and then started
        driver.oplog.append(change(4))
        await until(lambda: len(database.calls) > 1)
        database.error = None
        await until(lambda: database.stored == [1, 2, 3, 4])
    assert "the position of handler 'table' changed during the run" in watching.last_error
