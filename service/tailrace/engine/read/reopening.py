"""Reads on over a stream that failed, while handlers are still at work on what was read.

A run that ends starts again from its checkpoint, so everything begun must be handled first. Where
that lasts, one call that hangs would keep every other document waiting: then the stream is opened
again behind what was read last, and the lanes never notice.
"""

from __future__ import annotations

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


class Reopening:
    """The reading of one run, over as many streams as it takes."""

    def __init__(
        self,
        plan: ScopePlan,
        runtime: Runtime,
        status: Status,
        interrupt: Interrupt,
        watermark: Watermark,
        reader: Reader,
    ) -> None:
        self._plan = plan
        self._runtime = runtime
        self._status = status
        self._interrupt = interrupt
        self._watermark = watermark
        self._reader = reader
        self._failures = 0
        self._name = plan.scope.name
        self._log = structlog.get_logger().bind(scope=self._name)

    def stream(self, start: StartPoint) -> ChangeStream:
        """A stream of the scope, not yet open."""
        return ChangeStream(
            self._runtime.driver,
            self._plan.scope,
            self._plan.options,
            start,
            activity=self._status.stream,
            interrupt=self._interrupt,
        )

    async def read(self, stream: ChangeStream) -> Ending:
        """As :meth:`tailrace.engine.read.reader.Reader.read`; closes the stream.

        Raises the stream's error where nothing is in flight any more, or no restart would help.
        """
        while True:
            replies = self._reader.replies
            try:
                return await self._reader.read(stream)
            except DriverError as error:
                if self._reader.replies > replies + 1:
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
            decision = decide(error, self._name, opening=False)
            if decision.halt or not await self._lasts():
                break
            await self._back_off(decision)
            if self._interrupt.is_set:
                return None
            self._status.enter(WatcherState.STARTING)
            opened = self.stream(StartPoint(resume_after=token))
            try:
                with self._interrupt.interrupts() as opening:
                    await opened.open()
            except DriverError as failure:
                error = failure
                continue
            return None if opening.cancelled_caught else opened
        raise error

    async def _lasts(self) -> bool:
        """Whether handlers are still at work after some patience."""
        interrupt, watermark = self._interrupt, self._watermark
        if not watermark.empty:
            self._status.enter(WatcherState.DRAINING)
        with anyio.move_on_after(PATIENCE_SECONDS):
            while not (watermark.empty or interrupt.is_set):
                await interrupt.sleep(_LOOK_SECONDS)
        return not (watermark.empty or interrupt.is_set)

    async def _back_off(self, decision: Decision) -> None:
        self._failures += 1
        delay = self._plan.backoff.delay(self._failures)
        self._status.errors.note(decision.message)
        self._status.restarts += 1
        self._runtime.metrics.restarts.labels(self._name, decision.reason).inc()
        self._log.warning(
            "stream.reopening",
            reason=decision.reason,
            error=decision.message,
            delay_seconds=round(delay, 3),
            handlers=waits_for(self._name),
        )
        self._status.enter(WatcherState.BACKING_OFF, decision.message)
        await self._interrupt.sleep(delay)
