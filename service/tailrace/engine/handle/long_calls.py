"""Notices handler calls that run for long: from outside, on a timer, at no cost to deliveries."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from tailrace.engine.handle.frames import RunningCall, running_calls
from tailrace.engine.status.lag import iso
from tailrace.event.naming import named
from tailrace.observe.handler_recorder import HandlerRecorder

LONG_SECONDS = 20.0
"""A call counts as long after this time, or after its ``timeout_seconds`` if these are more."""
LOOK_SECONDS = 5.0

Recorders = Callable[[], Mapping[str, Mapping[str, HandlerRecorder]]]
"""The recorders by scope and handler."""


@dataclass(slots=True)
class LongCalls:
    """Notes in its recorder the longest call of each handler, and logs its start and end."""

    recorders: Recorders
    seconds: float = LONG_SECONDS
    _noted: dict[tuple[str, str], HandlerRecorder] = field(default_factory=dict)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Looks every :data:`LOOK_SECONDS` while the block runs."""
        loop = asyncio.get_running_loop()

        timer = loop.call_later(LOOK_SECONDS, lambda: look())

        def look() -> None:
            nonlocal timer
            timer = loop.call_later(LOOK_SECONDS, look)
            self.look()

        try:
            yield
        finally:
            timer.cancel()

    def look(self) -> None:
        """Compares the calls that run now with those of the last look."""
        longest: dict[tuple[str, str], RunningCall] = {}
        for call in running_calls():
            pair = call.scope, call.handler
            former = longest.get(pair)
            is_long = call.seconds >= max(self.seconds, call.limit)
            if is_long and (former is None or call.seconds > former.seconds):
                longest[pair] = call
        recorders = self.recorders()
        for pair in [pair for pair in self._noted if pair not in longest]:
            self._ended(pair, self._noted.pop(pair))
        for pair, call in longest.items():
            recorder = recorders.get(call.scope, {}).get(call.handler)
            if recorder is not None:
                self._runs(pair, recorder, call)

    def _runs(self, pair: tuple[str, str], recorder: HandlerRecorder, call: RunningCall) -> None:
        recorder.call_since, recorder.call = call.since, call.about
        is_known = pair in self._noted
        self._noted[pair] = recorder
        if is_known or call.is_question:
            return
        structlog.get_logger().warning(
            "handler.call_delayed",
            scope=call.scope,
            handler=call.handler,
            **(named(call.first) if call.first is not None else {"call": call.what}),
            since=iso(call.since),
            consequence="the events after it wait, and so does the checkpoint",
        )

    def _ended(self, pair: tuple[str, str], recorder: HandlerRecorder) -> None:
        since, recorder.call_since, recorder.call = recorder.call_since, None, ""
        scope, handler = pair
        structlog.get_logger().info(
            "handler.call_ended", scope=scope, handler=handler, since=iso(since)
        )
