"""Keeps an object of a user's class open, such as a pool of connections, until the service ends.

The object is entered and left in one task. If its destination is down at the start, the service
starts all the same, and that task tries again until the object is open.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import structlog

from tailrace.engine.handle.isolation import required
from tailrace.engine.handle.outage import is_outage
from tailrace.errors import ConfigurationError, Problem, TaskCancelled, Unavailable, describe
from tailrace.model.failure_policy import Backoff
from tailrace.observe.delay import reported_after
from tailrace.stream import Interrupt

OPENING_SECONDS = 10.0
"""How long the start waits for ``__aenter__``. After that, the calls of the handler wait for it."""

CLOSING_SECONDS = 5.0
"""How long ``__aexit__`` may take. Everything that was handled is saved by then."""

OPENING_BACKOFF = Backoff(0.5, 10.0)
_LOOK_SECONDS = 1.0
"""How often a waiting call looks whether the object is open. With the longest back-off this is less
than the 15 s after which a destination that is back must be used."""


@dataclass(slots=True)
class OpenObject:
    """An object of a user's class that is entered, or will be.

    ``outages``: further exceptions that say that its destination is down. Without ``waits``, they
    refuse the start, too.
    """

    handler: str
    target: Any
    outages: tuple[type[BaseException], ...] = ()
    waits: bool = True
    is_open: bool = False
    failure: ConfigurationError | None = None
    """Why the start is refused."""
    decided: anyio.Event = field(default_factory=anyio.Event)
    """Set when the object is open, the start is refused, or the destination is down."""
    _usable: Any = None
    _cause: str = "it is still being opened"
    _closing: Interrupt = field(default_factory=Interrupt)

    def usable(self) -> Any:
        """What ``__aenter__`` returned. Raises :class:`Unavailable` while it is not open."""
        if not self.is_open:
            message = f"{type(self.target).__name__} is not open: {self._cause}"
            raise Unavailable(message, retry_after=_LOOK_SECONDS)
        return self._usable

    def close(self) -> None:
        """Ends the attempts, and leaves the object."""
        self._closing.set()

    def is_late(self) -> None:
        """The start goes on, so that no failure can refuse it any more."""
        if not self.decided.is_set():
            self._log("warning", "destination.unavailable", error=self._cause)
            self.decided.set()

    async def run(self) -> None:
        """Enters the object, again and again if its destination is down, until :meth:`close`."""
        # Around everything that the object holds meanwhile, such as a task group of its own.
        with anyio.CancelScope() as life:
            try:
                tries = 0
                while not await self._entered(life) and not (self.failure or self._closing.is_set):
                    tries += 1
                    await self._closing.sleep(OPENING_BACKOFF.delay(tries))
                await self._closing.wait() if self.is_open else None
            finally:
                if self.is_open:
                    self.is_open = False
                    await _leave(self.handler, self.target, life)

    async def _entered(self, life: anyio.CancelScope) -> bool:
        try:
            with self._closing.calling(life.cancel):
                usable = await self.target.__aenter__()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is told
            self._failed(error)
            return False
        if self.decided.is_set():
            self._log("info", "destination.recovered")
        self._usable = self.target if usable is None else usable
        self.is_open = True
        self.decided.set()
        return True

    def _failed(self, error: BaseException) -> None:
        """Refuses the start, unless the service runs or the destination is down."""
        first, outage = not self.decided.is_set(), is_outage(error, self.outages)
        if first and isinstance(error, ConfigurationError):  # of a destination of our own
            self.failure = error
        elif first and not (outage and self.waits):
            message = f"{type(self.target).__name__} cannot be opened: {describe(error)}"
            message += ". 'tailrace run' starts, and waits for it" if outage else ""
            self.failure = ConfigurationError(Problem(f"handlers.{self.handler}", message))
            self.failure.__cause__ = error
        elif first:
            self._log("warning", "destination.unavailable", error=describe(error))
        self._cause = describe(error)
        self.decided.set()

    def _log(self, level: str, event: str, **more: object) -> None:
        getattr(structlog.get_logger(), level)(event, handler=self.handler, **more)


@asynccontextmanager
async def opened(
    handler: str, target: Any, outages: tuple[type[BaseException], ...] = (), *, waits: bool = True
) -> AsyncIterator[OpenObject]:
    """The object, entered if it is an async context manager, and left when the block ends.

    Without ``waits`` it is open then, or the start is refused. Raises :class:`ConfigurationError`
    if it cannot be entered for another reason than an outage, and :class:`TaskCancelled` if the
    object cancels the task that keeps it open, as an asyncio.TaskGroup in it does when it fails. An
    error of ``__aexit__`` is logged: it cannot undo what was handled.
    """
    found = OpenObject(handler, target, outages, waits)
    if not hasattr(target, "__aenter__"):
        found.is_open, found._usable = True, target
        yield found
        return
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            task = f"the task that keeps handler {handler!r} open"
            tasks.start_soon(required, found.run, task, name=f"{handler} open")
            try:
                with anyio.move_on_after(OPENING_SECONDS if waits else math.inf):
                    await found.decided.wait()
                if found.failure is not None:
                    raise found.failure
                found.is_late()
                yield found
            except Exception as error:  # noqa: BLE001 - raised below: the group would wrap it
                failure = error
            finally:
                found.close()
    except BaseExceptionGroup as group:
        lost, _ = group.split(TaskCancelled)
        failure = lost.exceptions[0] if lost is not None else group  # the process must end
    if failure is not None:
        raise failure


async def _leave(handler: str, target: Any, life: anyio.CancelScope) -> None:
    log = structlog.get_logger().bind(handler=handler)
    life.shield, life.deadline = True, anyio.current_time() + CLOSING_SECONDS
    slow = reported_after(
        CLOSING_SECONDS + 1,
        "handler.closing_delayed",
        handler=handler,
        reason="its __aexit__ ignores its cancellation",
    )
    try:
        with slow:
            await target.__aexit__(None, None, None)
    except anyio.get_cancelled_exc_class():
        if not life.cancel_called:
            raise
        log.error("handler.close_failed", error=f"it took longer than {CLOSING_SECONDS:g} s")
    except Exception as error:  # noqa: BLE001 - whatever it is, the others must close too
        log.error("handler.close_failed", error=describe(error))
