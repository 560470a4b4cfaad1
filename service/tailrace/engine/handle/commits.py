"""Hands events to a handler that takes them in, and has it commit what it took in."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from time import perf_counter

import anyio

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.isolation import closes
from tailrace.errors import HandlerFailed, HandlerGaveUp, TailraceError
from tailrace.event import ChangeEvent


class Commits:
    """The calls of one handler on one scope: those that take in, and then one that commits.

    Nothing is tried again here, since only the handler has what came before: a failure is
    raised, as :class:`tailrace.errors.HandlerFailed` or as what it is of our own.
    """

    def __init__(self, delivery: Delivery) -> None:
        self.scope = delivery.scope
        self.name = delivery.name
        self._handler = delivery.handler
        self._recorder = delivery.recorder
        self._taken, self._seconds = 0, 0.0

    async def take(self, events: Sequence[ChangeEvent]) -> None:
        """The handler takes the events in."""
        assert self._handler.on_events is not None  # noqa: S101 - for the type checker
        self._taken += len(events)
        await self._part(self._handler.on_events(self._handler.each(events)), "what it takes in")

    async def commit(self) -> None:
        """All that was taken in is handled when this returns."""
        assert self._handler.commit is not None  # noqa: S101 - for the type checker
        if self._taken:
            await self._part(self._handler.commit.call(), "a commit")
            self._recorder.handled(self._seconds, self._taken)
        self._taken, self._seconds = 0, 0.0

    async def _part(self, call: Awaitable[None], what: str) -> None:
        """One of the calls that a commit ends; together they count as one."""
        began = perf_counter()
        try:
            await call
        except BaseException as error:
            if isinstance(error, anyio.get_cancelled_exc_class()) or closes(error):
                raise
            self._recorder.failed(self._seconds + perf_counter() - began, self._taken)
            if isinstance(error, TailraceError):
                raise
            if self._handler.failure.halt:
                why = "after one attempt (on_failure: halt)"
                raise HandlerGaveUp(self.name, what, error, why) from error
            raise HandlerFailed(self.name, what, error) from error
        self._seconds += perf_counter() - began
