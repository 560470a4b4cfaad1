"""Hands events to one handler of one scope, and answers for what becomes of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from time import perf_counter
from typing import Any

import anyio

from service.engine.ports import Handler
from service.engine.recourse import Recourse, Spent
from service.errors import HandlerFailed
from service.model import ChangeEvent
from service.observe.metrics import HandlerRecorder
from service.stream import Interrupt


class Delivery:
    """An event that it returns from is handled: by the handler, or set aside by the recourse.

    Without a recourse a handler has one attempt, and :class:`service.errors.HandlerFailed` names
    the event by its token's digest. Raises what the recourse raises otherwise.
    """

    def __init__(
        self, handler: Handler, recorder: HandlerRecorder, recourse: Recourse | None = None
    ) -> None:
        self.handler = handler
        self.name = handler.name
        self._on_event = handler.on_event
        self._on_events = handler.on_events
        self._recorder = recorder
        self._recourse = recourse
        self._timeout = recourse.policy.timeout_seconds if recourse else None

    def wait_until(self, interrupt: Interrupt) -> None:
        """Waiting for a next attempt ends with ``interrupt``; an attempt that runs does not."""
        if self._recourse is not None:
            self._recourse.wait_until(interrupt)

    async def deliver(self, event: ChangeEvent) -> None:
        """To a handler of single events."""
        assert self._on_event is not None  # noqa: S101 - for the type checker
        if await self._goes_behind(event):
            return
        error = await self._attempt(self._on_event, event, 1)
        if error is not None:
            spent = await self._insist(self._on_event, event, event, error)
            if spent is not None:
                await self._give_up(event, spent)

    async def deliver_all(self, events: Sequence[ChangeEvent]) -> None:
        """To a handler of sequences.

        A sequence that fails to the last attempt is handed over once more event by event, to find
        the one that is at fault; the others are not set aside with it.
        """
        assert self._on_events is not None  # noqa: S101 - for the type checker
        if self._recourse is not None and self._recourse.held:
            events = [event for event in events if not await self._goes_behind(event)]
            if not events:
                return
        error = await self._attempt(self._on_events, events, len(events))
        if error is None:
            return
        spent = await self._insist(self._on_events, events, events[0], error)
        if spent is not None and len(events) == 1:
            await self._give_up(events[0], spent)
        elif spent is not None:
            for event in events:
                await self._alone(event, spent.attempts)

    async def _alone(self, event: ChangeEvent, attempts: int) -> None:
        assert self._on_events is not None  # noqa: S101 - for the type checker
        if await self._goes_behind(event):
            return
        error = await self._attempt(self._on_events, [event], 1)
        if error is not None:
            await self._give_up(event, Spent(error, attempts + 1))

    async def _insist(
        self,
        call: Callable[[Any], Awaitable[Any]],
        payload: Any,
        event: ChangeEvent,
        error: BaseException,
    ) -> Spent | None:
        if self._recourse is None:
            raise HandlerFailed(self.name, event.token.digest, error) from error
        count = len(payload) if isinstance(payload, Sequence) else 1
        return await self._recourse.insist(
            lambda: self._attempt(call, payload, count), error, event
        )

    async def _give_up(self, event: ChangeEvent, spent: Spent) -> None:
        assert self._recourse is not None  # noqa: S101 - for the type checker
        await self._recourse.give_up(event, spent)

    async def _goes_behind(self, event: ChangeEvent) -> bool:
        recourse = self._recourse
        if recourse is None or not (held := recourse.held) or event.key not in held:
            return False
        return await recourse.set_behind(event)

    async def _attempt(
        self, call: Callable[[Any], Awaitable[Any]], payload: Any, count: int
    ) -> BaseException | None:
        """Calls the handler once; counts and times the call, and returns its error."""
        began = perf_counter()
        try:
            if self._timeout is None:
                await call(payload)
            else:
                with anyio.fail_after(self._timeout):
                    await call(payload)
        except (Exception, anyio.get_cancelled_exc_class()) as error:
            if _is_cancellation(error):
                raise
            self._recorder.failed(perf_counter() - began, count)
            return error
        self._recorder.handled(perf_counter() - began, count)
        return None


def _is_cancellation(error: BaseException) -> bool:
    """Whether we are being cancelled.

    A handler that awaited somebody else's cancelled task raises the same class, and has failed.
    """
    return not isinstance(error, Exception) and anyio.current_effective_deadline() == -inf
