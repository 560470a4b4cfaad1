"""One attempt at one handler, counted and timed."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from time import perf_counter

import anyio

from service.engine.ports import Handler
from service.errors import HandlerFailed
from service.model import ChangeEvent
from service.observe.metrics import HandlerRecorder


class Delivery:
    """Hands events to a handler: one attempt each.

    Raises :class:`service.errors.HandlerFailed`, which names the event by its token's digest.
    """

    def __init__(self, handler: Handler, recorder: HandlerRecorder) -> None:
        self.name = handler.name
        self._on_event = handler.on_event
        self._on_events = handler.on_events
        self._recorder = recorder

    async def deliver(self, event: ChangeEvent) -> None:
        """To a handler of single events."""
        assert self._on_event is not None  # noqa: S101 - for the type checker
        began = perf_counter()
        try:
            await self._on_event(event)
        except (Exception, anyio.get_cancelled_exc_class()) as error:
            if _is_cancellation(error):
                raise
            self._recorder.failed(perf_counter() - began, 1)
            raise HandlerFailed(self.name, event.token.digest, error) from error
        self._recorder.handled(perf_counter() - began, 1)

    async def deliver_all(self, events: Sequence[ChangeEvent]) -> None:
        """To a handler of sequences; all of them are handled, or none counts as handled."""
        assert self._on_events is not None  # noqa: S101 - for the type checker
        began = perf_counter()
        try:
            await self._on_events(events)
        except (Exception, anyio.get_cancelled_exc_class()) as error:
            if _is_cancellation(error):
                raise
            self._recorder.failed(perf_counter() - began, len(events))
            raise HandlerFailed(self.name, events[0].token.digest, error) from error
        self._recorder.handled(perf_counter() - began, len(events))


def _is_cancellation(error: BaseException) -> bool:
    """Whether we are being cancelled.

    A handler that awaited somebody else's cancelled task raises the same class, and has failed.
    """
    return not isinstance(error, Exception) and anyio.current_effective_deadline() == -inf
