"""Waits while a handler's destination is down: nothing counts, nothing becomes a dead letter.

A handler says so with :class:`tailrace.Unavailable`. Python's own connection errors mean the same,
and the configuration may name more (``outages``).
"""

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
import structlog

from tailrace.errors import DeliveryInterrupted, Unavailable, describe
from tailrace.model.failure_policy import OUTAGE_BACKOFF, Backoff
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.stream import Interrupt

_CONNECTION = (ConnectionError, TimeoutError, socket.gaierror, socket.herror)
_NUMBERS = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH})


def is_outage(error: BaseException, more: tuple[type[BaseException], ...] = ()) -> bool:
    """Whether the destination is down, rather than an event at fault. ``more``: further classes."""
    if isinstance(error, (Unavailable, *_CONNECTION, *more)):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(is_outage(each, more) for each in error.exceptions)
    if not isinstance(error, OSError):
        return False
    # asyncio and anyio raise a bare OSError if a name has several addresses and none answers.
    several = error.errno is None and str(error).startswith(
        ("Multiple exceptions", "All connection")
    )
    return several or error.errno in _NUMBERS


@dataclass(slots=True)
class Outages:
    """The outages of one handler's destination in one run of a scope. ``until`` ends the waits."""

    scope: str
    handler: str
    recorder: HandlerRecorder
    until: Interrupt
    more: tuple[type[BaseException], ...] = ()
    backoff: Backoff = OUTAGE_BACKOFF
    one_by_one: bool = False
    """Whether only the first call in the outage tries: the others wait for its answer."""
    lasting: BaseException | None = None
    """Why the destination is down, if no further call may begin: it goes on with the first one."""
    _calls: list["Outage"] = field(default_factory=list)
    """The calls in the outage."""

    def is_one(self, error: BaseException) -> bool:
        """Whether the error says that the destination is down."""
        return is_outage(error, self.more)

    @contextmanager
    def outage(self, error: BaseException) -> Iterator["Outage"]:
        """While the block runs, the destination counts as down."""
        self.begin(error)
        call = Outage(self)
        self._calls.append(call)
        try:
            yield call
        finally:
            self._calls.remove(call)
            self.forget()  # a stop ended the waits: the next run will find out
            if self._calls and self.one_by_one:
                self._calls[0].wake.set()

    def begin(self, error: BaseException) -> None:
        """The destination does not answer."""
        recorder, cause = self.recorder, describe(error)
        if recorder.down_since is None:
            recorder.down_since = time.time()
            self._log("warning", "destination.unavailable", error=cause)
        recorder.down_cause = cause

    def forget(self) -> None:
        """Nothing waits for the destination any more: whether it is back is not known."""
        if not self._calls:
            self.recorder.down_since, self.recorder.down_cause = None, ""
            self.lasting = None

    async def wait(self, call: "Outage", seconds: float) -> None:
        """Returns after this time, or as soon as another call has got an answer.

        Raises :class:`DeliveryInterrupted` if a stop comes.
        """
        wake = call.wake = anyio.Event()
        with self.until.interrupts():
            with anyio.move_on_after(seconds):
                await wake.wait()
            if self.one_by_one and self._calls[0].task != call.task:
                await wake.wait()
        if self.until.is_set:  # at the start of a run, a cancellation comes first
            cause = self.recorder.down_cause
            raise DeliveryInterrupted(f"handler {self.handler!r}: stopped in an outage: {cause}")

    def over(self) -> None:
        """The destination has answered: every waiting call is tried now."""
        since, self.lasting = self.recorder.down_since, None
        for call in self._calls:
            call.wake.set()
        if since is not None:
            self.recorder.down_since, self.recorder.down_cause = None, ""
            self._log("info", "destination.recovered", seconds=round(time.time() - since, 3))

    def _log(self, level: str, event: str, **more: object) -> None:
        log = structlog.get_logger().bind(scope=self.scope, handler=self.handler)
        getattr(log, level)(event, **more)


@dataclass(slots=True, eq=False)
class Outage:
    """The outage as one call sees it. ``wake`` lets it try before its wait is over. ``task``: of
    the call, which may ask for the destination's position in an outage of its own."""

    outages: Outages
    wake: anyio.Event = field(default_factory=anyio.Event)
    task: int = field(default_factory=lambda: anyio.get_current_task().id)
    _tries: int = 0

    async def wait(self, error: BaseException) -> None:
        """Waits until the next try, as long as the error says or with back-off."""
        outages, self._tries = self.outages, self._tries + 1
        outages.begin(error)
        if outages.one_by_one and self._tries > 1:
            outages.lasting = error
        after = error.retry_after if isinstance(error, Unavailable) else None
        await outages.wait(self, outages.backoff.delay(self._tries) if after is None else after)

    def over(self) -> None:
        """The last try got an answer."""
        self.outages.over()
