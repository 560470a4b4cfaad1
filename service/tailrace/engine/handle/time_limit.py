"""Limits the time of a handler call, and checks what the call returns."""

import asyncio
import inspect
from dataclasses import dataclass
from typing import Any

import anyio
import structlog

from tailrace.engine.ports import Call, RunIdentity
from tailrace.errors import AttemptTimedOut, PermanentError
from tailrace.event import ChangeEvent
from tailrace.observe.handler_recorder import HandlerRecorder

LOOK_SECONDS = 0.25
OVERDUE_LOOKS = 4
"""An attempt counts as overdue if it runs at so many looks after its time limit."""


def require_done(result: object) -> None:
    """Raises :class:`PermanentError` for an awaitable result: no further attempt would await it."""
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        result.close()  # else the interpreter warns of it later, without a name
    raise PermanentError(
        f"it returned a {type(result).__name__} that nobody awaited, so its work is not done: "
        "write 'await' before the call"
    )


class Returned:
    """Checks the results of one handler's calls that return something."""

    def __init__(self, scope: str, handler: str) -> None:
        self._log = structlog.get_logger().bind(scope=scope, handler=handler)
        self._warned = False

    def check(self, result: object) -> None:
        """Raises for an awaitable that nobody awaited; ignores other values, with one warning."""
        require_done(result)
        if not self._warned:
            self._warned = True
            self._log.warning(
                "handler.return_ignored",
                type=type(result).__name__,
                consequence="handled all the same: a handler that could not do it must raise",
            )


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The time that one attempt at a handler may take.

    An attempt that ignores its cancellation (a thread, a shield, a bare ``except``) occupies its
    lane, since two attempts at one event never run at once. It is logged and counted as overdue,
    but not because something else blocks the event loop.
    """

    seconds: float
    scope: str
    handler: str
    recorder: HandlerRecorder

    async def call(
        self, call: Call, payload: Any, identity: RunIdentity, event: ChangeEvent | None
    ) -> Any:
        """Raises :class:`AttemptTimedOut` if the time is up before the call has returned.

        A ``TimeoutError`` of the handler's own is an outage of its destination; this is not.
        """
        looks, loop, spared = 0, asyncio.get_running_loop(), anyio.CancelScope()

        timer = loop.call_later(self.seconds + LOOK_SECONDS, lambda: look())

        def look() -> None:
            # Several timers one after another: one long turn of the event loop ends only one.
            nonlocal looks, timer
            timer = loop.call_later(LOOK_SECONDS, look)
            looks += 1
            # anyio cancels the call in every turn of the loop; from now on, only at each look.
            spared.shield = False
            spared.shield = True
            if looks == OVERDUE_LOOKS:
                self.recorder.overdue += 1
                self._log(event).warning(
                    "handler.overdue",
                    timeout_seconds=self.seconds,
                    consequence="it ignores its cancellation: its lane is taken until it ends",
                )

        try:
            with anyio.move_on_after(self.seconds), spared:
                return await call(payload, identity)
        finally:
            timer.cancel()
            if looks >= OVERDUE_LOOKS:
                self.recorder.overdue -= 1
                self._log(event).warning("handler.overdue_ended")
        raise AttemptTimedOut(
            f"handler {self.handler!r}: the call did not end within its timeout_seconds "
            f"({self.seconds:g} s)"
        )

    def _log(self, event: ChangeEvent | None) -> Any:
        log = structlog.get_logger().bind(scope=self.scope, handler=self.handler)
        return log if event is None else log.bind(event_id=event.token.digest)
