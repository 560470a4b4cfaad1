"""Reads on over a stream that failed, while handlers are still at work on what was read.

A run that ends starts again from its checkpoint, so everything begun must be handled first. Where
that lasts, one call that hangs would keep every other document waiting: then the stream is opened
again behind what was read last, and the lanes never notice.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import structlog

from tailrace.engine.error_policy import Decision, decide
from tailrace.engine.handle.frames import waits_for
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.read.reader import Ending, Reader
from tailrace.engine.scope_plan import Runtime, ScopePlan
from tailrace.engine.state import WatcherState
from tailrace.engine.status import Status
from tailrace.errors import DriverError
from tailrace.model import StartPoint
from tailrace.stream import ChangeStream, Interrupt

PATIENCE_SECONDS = 2.0
"""How long handlers may take before the stream is opened without waiting for them."""
_LOOK_SECONDS = 0.02
CLOSING_SECONDS = 5.0


@dataclass(slots=True)
class Reopening:
    """The reading of one run, over as many streams as it takes."""

    plan: ScopePlan
    runtime: Runtime
    status: Status
    interrupt: Interrupt
    watermark: Watermark
    reader: Reader
    _failures: int = 0

    def stream(self, start: StartPoint) -> ChangeStream:
        """A stream of the scope, not yet open."""
        return ChangeStream(
            self.runtime.driver,
            self.plan.scope,
            self.plan.options,
            start,
            activity=self.status.stream,
            interrupt=self.interrupt,
        )

    async def read(self, stream: ChangeStream) -> Ending:
        """As :meth:`tailrace.engine.read.reader.Reader.read`; closes the stream.

        Raises the stream's error where nothing is in flight any more, or no restart would help.
        """
        while True:
            replies = self.reader.replies
            try:
                return await self.reader.read(stream)
            except DriverError as error:
                if self.reader.replies > replies + 1:
                    self._failures = 0
                opened = await self._opened(stream, error)
                if opened is None:
                    return Ending.STOPPED
            finally:
                with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                    await stream.aclose()
            stream = opened

    async def _opened(self, stream: ChangeStream, error: DriverError) -> ChangeStream | None:
        """One that goes on behind what ``stream`` has returned; ``None`` after a stop."""
        token = stream.resume_token
        while token is not None:
            decision = decide(error, self.plan.scope.name, opening=False)
            if decision.halt or not await self._lasts():
                break
            await self._back_off(decision)
            if self.interrupt.is_set:
                return None
            self.status.enter(WatcherState.STARTING)
            opened = self.stream(StartPoint(resume_after=token))
            try:
                with self.interrupt.interrupts() as opening:
                    await opened.open()
            except DriverError as failure:
                error = failure
                continue
            return None if opening.cancelled_caught else opened
        raise error

    async def _lasts(self) -> bool:
        """Whether handlers are still at work after some patience."""
        interrupt, watermark = self.interrupt, self.watermark
        if not watermark.empty:
            self.status.enter(WatcherState.DRAINING)
        with anyio.move_on_after(PATIENCE_SECONDS):
            while not (watermark.empty or interrupt.is_set):
                await interrupt.sleep(_LOOK_SECONDS)
        return not (watermark.empty or interrupt.is_set)

    async def _back_off(self, decision: Decision) -> None:
        self._failures += 1
        delay = self.plan.backoff.delay(self._failures)
        self.status.errors.note(decision.message)
        self.status.restarts += 1
        self.runtime.metrics.restarts.labels(self.plan.scope.name, decision.reason).inc()
        structlog.get_logger().warning(
            "stream.reopening",
            scope=self.plan.scope.name,
            reason=decision.reason,
            error=decision.message,
            delay_seconds=round(delay, 3),
            handlers=waits_for(self.plan.scope.name),
        )
        self.status.enter(WatcherState.BACKING_OFF, decision.message)
        await self.interrupt.sleep(delay)
