"""Limits the time of a handler call, and checks what the call returns.

Nothing here runs for a call that returns ``None`` to a delivery without a time limit.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import structlog

from tailrace.errors import PermanentError
from tailrace.event import ChangeEvent
from tailrace.observe.handler_recorder import HandlerRecorder

PATIENCE_SECONDS = 1.0
"""How long an attempt may clean up behind its time limit before it is said to ignore it."""


def require_done(result: object) -> None:
    """Raises :class:`PermanentError` for work that nobody awaited: no further attempt would."""
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        result.close()  # else the interpreter complains of it, somewhere and without a name
    raise PermanentError(
        f"it returned a {type(result).__name__} that nobody awaited, so its work is not done: "
        "write 'await' before the call"
    )


class Returned:
    """Judges what the calls of one handler return, where that is anything at all."""

    def __init__(self, scope: str, handler: str) -> None:
        self._log = structlog.get_logger().bind(scope=scope, handler=handler)
        self._told = False

    def check(self, result: object) -> None:
        """Raises for work that is not done; any other value is ignored, with one warning."""
        require_done(result)
        if not self._told:
            self._told = True
            self._log.warning(
                "handler.return_ignored",
                type=type(result).__name__,
                consequence="handled all the same: a handler that could not do it must raise",
            )


class TimeLimit:
    """The time that one attempt at a handler may take.

    An attempt that takes no notice of its cancellation (a thread has none, a shield holds it off,
    a bare ``except`` swallows it) keeps its lane: two attempts at one event never run at once.
    The log says so, and ``recorder.overdue`` counts while it lasts.
    """

    def __init__(self, seconds: float, scope: str, handler: str, recorder: HandlerRecorder) -> None:
        self.seconds = seconds
        self._recorder = recorder
        self._log = structlog.get_logger().bind(scope=scope, handler=handler)
        # In the order in which they began, so in that in which they are due: one timer will do.
        self._running: dict[_Attempt, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def call(
        self, call: Callable[[Any], Awaitable[Any]], payload: Any, event: ChangeEvent
    ) -> Any:
        """Raises :class:`TimeoutError` if the time is up before the call has returned."""
        attempt = _Attempt(event, anyio.current_time() + self.seconds + PATIENCE_SECONDS)
        self._running[attempt] = None
        if self._timer is None:
            self._arm(attempt)
        try:
            with anyio.fail_after(self.seconds):
                return await call(payload)
        finally:
            del self._running[attempt]
            if attempt.overdue:
                self._recorder.overdue -= 1
                self._log.warning("handler.overdue_ended", event_id=event.token.digest)

    def _arm(self, attempt: _Attempt) -> None:
        self._timer = asyncio.get_running_loop().call_at(attempt.due, self._look)

    def _look(self) -> None:
        self._timer, now = None, anyio.current_time()
        for attempt in self._running:
            if attempt.overdue:
                continue
            if attempt.due > now:
                self._arm(attempt)
                return
            attempt.overdue = True
            self._recorder.overdue += 1
            self._log.warning(
                "handler.overdue",
                event_id=attempt.event.token.digest,
                timeout_seconds=self.seconds,
                consequence="it ignores its cancellation: its lane is taken until it ends",
            )


class _Attempt:
    __slots__ = ("due", "event", "overdue")

    def __init__(self, event: ChangeEvent, due: float) -> None:
        self.event = event
        self.due = due
        self.overdue = False
