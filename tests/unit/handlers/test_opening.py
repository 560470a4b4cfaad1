"""An object whose destination is down, or does not answer, when the service starts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from tailrace import Batch, ChangeEvent, ScopeContext, Unavailable
from tailrace.destination import keeper
from tailrace.destinations.python import PythonHandlerSettings
from tailrace.engine import Handler, PerBatch
from tailrace.errors import ConfigurationError, TaskCancelled
from tailrace.handlers import open_handler
from tailrace.model.failure_policy import Backoff
from tests.guards import against_hanging
from tests.handlers import begin, deliver
from tests.handlers import opening as opening_of
from tests.unit.engine.changes import change, ddl, until

EVENT = ChangeEvent.from_document(change(1))


class Database:
    """A destination that raises ``error`` while it has one, and hangs while it is told to."""

    def __init__(self, error: Exception | None = None, *, hangs: bool = False) -> None:
        self.error = error
        self.hangs = hangs
        self.tries = 0
        self.calls: list[str] = []

    async def __aenter__(self) -> "Database":
        self.tries += 1
        if self.hangs:
            await anyio.sleep_forever()
        if self.error is not None:
            raise self.error
        self.calls.append("opened")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.calls.append("closed")

    async def begin(self, scope: ScopeContext) -> str | None:
        self.calls.append("begin")
        return None

    async def write(self, batch: Batch) -> None:
        self.calls.append(f"write {len(batch)}")

    async def on_ddl(self, event: ChangeEvent) -> None:
        self.calls.append(f"on_ddl {event.operation_type}")


class WithTasks:
    """An object with an asyncio.TaskGroup, whose failure cancels the task that entered it."""

    async def __aenter__(self) -> None:
        self._tasks = await asyncio.TaskGroup().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        pass

    async def __call__(self, event: ChangeEvent) -> None:
        self._tasks.create_task(self._fail())

    async def _fail(self) -> None:
        raise RuntimeError("the flush failed")


class Called:
    """An object of one event a call, which cannot be opened at first."""

    def __init__(self) -> None:
        self.down = True
        self.events: list[ChangeEvent] = []

    async def __aenter__(self) -> None:
        if self.down:
            raise Unavailable("no broker")

    async def __aexit__(self, *error: object) -> None: ...

    async def __call__(self, event: ChangeEvent) -> None:
        self.events.append(event)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "OPENING_BACKOFF", Backoff(0, 0))


@asynccontextmanager
async def opened(target: Any, **fields: Any) -> AsyncIterator[Handler]:
    given = {"type": "python", "target": "mine:Database", **fields}
    settings = PythonHandlerSettings.model_validate(given)
    opening, create = opening_of("mine"), lambda: target
    async with open_handler.open_handler(opening, settings, create, waits=True) as handler:
        yield handler


async def test_a_destination_that_is_down_at_the_start_is_waited_for() -> None:
    """Its calls raise ``Unavailable`` until then, so that they wait as in any outage."""
    database = Database(ConnectionRefusedError("nobody listens"))
    message = "Database is not open: ConnectionRefusedError: nobody listens"
    with capture_logs() as logs:
        async with opened(database) as handler:
            for call in (deliver(handler, EVENT), begin(handler)):
                with pytest.raises(Unavailable, match=message):
                    await call
            database.error = None
            await until(lambda: "opened" in database.calls)
            await begin(handler)
            await deliver(handler, EVENT)
            await deliver(handler, ChangeEvent.from_document(ddl(2)))
    assert database.calls == ["opened", "begin", "write 1", "on_ddl drop", "closed"]
    assert [(log["event"], log["handler"]) for log in logs] == [
        ("destination.unavailable", "mine"),
        ("destination.recovered", "mine"),
    ]


async def test_a_probe_does_not_wait_and_says_what_run_does() -> None:
    """As in ``tailrace check --connect``, and before a replay of dead letters."""
    message = (
        "Database cannot be opened: ConnectionError: no route. 'tailrace run' starts, and waits"
    )
    settings = PythonHandlerSettings.model_validate({"type": "python", "target": "mine:Database"})
    down = Database(ConnectionError("no route"))
    with pytest.raises(ConfigurationError, match=message):
        async with open_handler.open_handler(opening_of("mine"), settings, lambda: down):
            pass


async def test_an_error_that_outages_names_is_waited_for_and_a_later_one_of_any_kind_too() -> None:
    database = Database(LookupError("starting up"))
    async with opened(database, outages=["builtins.LookupError"]) as handler:
        database.error = ValueError("no such role yet")
        tries = database.tries
        await until(lambda: database.tries > tries + 3)
        with pytest.raises(Unavailable, match="no such role yet"):
            await deliver(handler, EVENT)


async def test_a_destination_that_never_came_back_is_not_left_and_delays_no_stop() -> None:
    database = Database(ConnectionError())
    with against_hanging():
        async with opened(database) as handler:
            assert isinstance(handler.calls, PerBatch)
    assert database.calls == []


async def test_an_entry_that_hangs_delays_neither_the_start_nor_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_handler, "OPENING_SECONDS", 0)
    database = Database(hangs=True)
    with capture_logs() as logs, against_hanging():
        async with opened(database) as handler:
            with pytest.raises(Unavailable, match="it is still being opened"):
                await deliver(handler, EVENT)
    assert [log["event"] for log in logs] == ["destination.unavailable"]
    assert database.calls == []


async def test_a_call_of_one_event_waits_for_its_object_too() -> None:
    target = Called()
    async with opened(target) as handler:
        with pytest.raises(Unavailable, match="Called is not open: Unavailable: no broker"):
            await deliver(handler, EVENT)
        target.down = False

        async def accepted() -> None:
            with against_hanging():
                while not target.events:
                    try:
                        await deliver(handler, EVENT)
                    except Unavailable:
                        await anyio.lowlevel.checkpoint()

        await accepted()
    assert target.events == [EVENT]


async def test_a_task_of_an_object_that_fails_ends_the_service() -> None:
    """With exit code 1: nobody else would notice it."""

    async def serve() -> None:
        async with opened(WithTasks()) as handler:
            await deliver(handler, EVENT)
            await anyio.sleep_forever()

    with pytest.raises(TaskCancelled, match="the task that keeps handler 'mine' open was cancell"):
        await serve()
