"""Reads a stream and admits each reply to the watermark and the lanes.

Before a run ends, everything begun must be handled. If one handler call hangs, all other documents
would have to wait. So if the stream fails meanwhile, it is reopened after the last reply read.

A reply may fail because of one of its events. Then the stream is read again one event at a time, so
that the events before that one are handled, and the scope halts exactly there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import anyio
import structlog

from tailrace.engine.error_policy import Decision, decide, unsendable
from tailrace.engine.handle.frames import waits_for
from tailrace.engine.plan.row_source import Rows, RowSource
from tailrace.engine.plan.scope_plan import Runtime, ScopePlan
from tailrace.engine.plan.source_history import awaited, restored
from tailrace.engine.read.admission import Admission
from tailrace.engine.read.ending import Ending
from tailrace.engine.read.read_limit import reply_bytes
from tailrace.engine.status.status import Status
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.errors import DriverError, ScopeHalted, StreamInterrupted, describe
from tailrace.event import RawBatch
from tailrace.model import StartPoint
from tailrace.model.start import NOW
from tailrace.stream import (
    ChangeStream,
    Interrupt,
    LookupStream,
    find_unsent,
    may_be_of_event,
)

_LAST_READ_SECONDS = 0.25
"""The limit of the last read after a stop. A read that waits for a change is abandoned; the
next run reads what it would have returned."""
_SMALL_REPLY_BYTES = 65536
PATIENCE_SECONDS = 2.0
"""How long handlers may take before the stream is reopened without waiting for them."""
_LOOK_SECONDS = 0.02
_MOST_SINGLE = 10_000
"""Up to so many events are read one at a time after a reply of any size has failed."""
CLOSING_SECONDS = 5.0


Stream: TypeAlias = ChangeStream | LookupStream


@dataclass(slots=True)
class Reader:
    """The reading side of one run. ``is_there`` is asked after each reply whether the stream has
    come to its end; it is told whether the server has no further change at that time."""

    plan: ScopePlan
    runtime: Runtime
    status: Status
    rows: RowSource
    interrupt: Interrupt
    admission: Admission
    is_there: Callable[[bool], bool]
    events: int = 0
    replies: int = 0
    _failures: int = 0
    _start: StartPoint = NOW
    """Where the open stream began."""
    _single: int = 0
    """How many more events are read one at a time; 0: by whole replies."""

    def stream(self, start: StartPoint) -> Stream:
        """A stream of the scope, not yet open."""
        options, rows = self.plan.options, self.rows
        self._start = start
        if self._single:
            options = replace(options, batch_size=1)
        stream = ChangeStream(
            self.runtime.driver,
            self.plan.scope,
            options,
            start,
            activity=self.status.stream,
            interrupt=self.interrupt,
            reply_bytes=reply_bytes(self.runtime.budget.limit),
        )
        if not options.looks_up:
            return stream
        return LookupStream(
            stream,
            self.runtime.driver,
            read_preference=options.read_preference,
            by_uuid=options.match_collection_uuid_for_update_lookup is not False,
            most_bytes=self.runtime.budget.limit // 4,
            # Rows need new changes at once: see Admission.wants_more.
            may_prefetch=lambda: not rows.active,
            interrupt=self.interrupt,
        )

    async def read(self, stream: Stream) -> Ending:
        """Reads until a stop or an invalidate, reopening the stream if needed; closes each stream.

        Raises the stream's error if nothing is in flight any more, or if a restart cannot help.
        """
        while True:
            replies = self.replies
            try:
                ending = await self._read_one(stream)
                if ending is not None:
                    return ending
                opened = await self._open(self._position(stream).past_token)
            except DriverError as error:
                if self.replies > replies + 1:
                    self._failures = 0
                opened = await self._opened(stream, error)
            finally:
                with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                    await stream.aclose()
            if opened is None:
                return Ending.STOPPED
            stream = opened

    async def _read_one(self, stream: Stream) -> Ending | None:
        with self.interrupt.interrupts(_LAST_READ_SECONDS):
            if isinstance(stream, LookupStream):
                return await stream.reading(self._read)
            return await self._read(stream)
        log = structlog.get_logger().bind(scope=self.plan.scope.name)
        log.debug("stream.abandoned", reason="the last read did not end in time")
        return Ending.STOPPED

    async def _read(self, stream: Stream) -> Ending | None:
        """Reads until the stream ends; ``None`` once the next reply may be a whole one again."""
        watermarks, handlers = self.admission.watermarks, self.admission.handlers
        opening, wait, whole = True, True, False
        cursors = 0
        while not self.interrupt.is_set:
            try:
                batch = await stream.next_batch(wait=wait)
            except StreamInterrupted:
                break
            # After an idle token the server is read first: its oplog may be about to lose that
            # place. It would refuse an event's token itself, without the reason.
            first = opening and (token := watermarks.position.token) and token.is_high_water
            if cursors != self.status.stream.cursors and not first:
                cursors = self.status.stream.cursors
                await self._require_history()
            self.replies += 1
            events, size = len(batch), batch.size
            if self.interrupt.is_set and events:
                break  # begin nothing new: the next run reads it again
            watermarks.read(batch)
            places = await self.admission.reply(
                batch, opening=opening, invalidated=stream.invalidated
            )
            if self._single and not opening:
                self._single = max(0, self._single - events) if events else 0
                whole = not self._single
            exhausted = batch.token is not None and not (events or opening)  # no fragments
            wait, opening = not self.admission.wants_more, False
            if size < _SMALL_REPLY_BYTES:
                # Let handlers run first: the code below, and the driver's part of the next read,
                # would double their latency.
                await anyio.lowlevel.checkpoint()
            self.status.counts.events += events
            self._count(batch)
            if places is None:
                break
            if stream.invalidated:
                scope = self.plan.scope.name
                self.runtime.metrics.invalidates.labels(scope).inc()
                structlog.get_logger().info("stream.invalidated", scope=scope)
                return Ending.INVALIDATED
            state = self.status.following(events, opening=self.replies == 1)
            self.status.enter(state)
            if state is WatcherState.CAUGHT_UP:
                for handler in handlers:
                    handler.rest()
            del batch  # a reply may be large, and the next one comes soon
            if self.is_there(exhausted):
                return Ending.ARRIVED
            if size and handlers:
                await self.admission.limit.until_hungry(size, places, handlers, watermarks)
                self.status.enter(state)
            if whole:
                return None
        return Ending.STOPPED

    async def _require_history(self) -> None:
        """Raises :class:`tailrace.errors.SourceRestored` if the last change read is gone."""
        time, scope = self.admission.watermarks.last_change, self.plan.scope
        if time is None:
            return
        behind = partial(self.status.enter, WatcherState.STARTING, awaited(time))
        driver, options = self.runtime.driver, self.plan.options
        if not await self.runtime.has_change(driver, scope, options, time, behind):
            raise restored(scope.name, time)

    async def admit_rows(self, rows: Rows) -> int | None:
        """Admits rows; returns how many places they take, or ``None`` if a stop came first."""
        places = await self.admission.rows(rows)
        if places is not None:
            self.status.counts.rows += len(rows.batch)
            self._count(rows.batch)
        return places

    def _count(self, batch: RawBatch) -> None:
        self.events += len(batch)
        for operation, count in batch.operations().items():
            self.runtime.metrics.events.labels(self.plan.scope.name, operation).inc(count)

    def _position(self, stream: Stream) -> StartPoint:
        """Where a stream continues after the replies of this one."""
        token = stream.resume_token
        if token is None or token == self._start.start_after:
            return self._start
        return StartPoint(resume_after=token, past=self._start.past)

    async def _open(self, start: StartPoint) -> Stream | None:
        """A new stream; ``None`` after a stop."""
        opened = self.stream(start)
        with self.interrupt.interrupts() as opening:
            await opened.open()
        return None if opening.cancelled_caught else opened

    async def _opened(self, stream: Stream, error: DriverError) -> Stream | None:
        """A new stream that continues after the replies of ``stream``; ``None`` after a stop."""
        position = self._position(stream)
        if may_be_of_event(error):
            try:
                if not self._single and self.plan.options.batch_size != 1:
                    self._single = self.plan.options.batch_size or _MOST_SINGLE
                    structlog.get_logger().warning(
                        "stream.reopened",
                        scope=self.plan.scope.name,
                        reason="a reply failed: reading one event at a time",
                        error=describe(error),
                    )
                    return await self._open(position.past_token)
                await self._require_sent(position)
                if self.interrupt.is_set:
                    return None
            except DriverError as failure:
                error = failure
        while stream.resume_token is not None:
            decision = decide(error, self.plan.scope.name, opening=False)
            if decision.halt or not await self._work_remains():
                break
            await self._back_off(decision)
            if self.interrupt.is_set:
                return None
            self.status.enter(WatcherState.STARTING)
            try:
                return await self._open(position)
            except DriverError as failure:
                error = failure
        raise error

    async def _require_sent(self, position: StartPoint) -> None:
        """Raises :class:`ScopeHalted` if the server cannot send the next event, once all before it
        is handled."""
        plan = self.plan
        with self.interrupt.interrupts():
            unsent = await find_unsent(self.runtime.driver, plan.scope, plan.options, position)
            if unsent is None:
                return
            if not self.admission.watermarks.empty:
                self.status.enter(WatcherState.DRAINING)
            while not self.admission.watermarks.empty:  # noqa: ASYNC110 - once, before a halt
                await anyio.sleep(_LOOK_SECONDS)
            raise ScopeHalted(unsendable(plan.scope.name, unsent))

    async def _work_remains(self) -> bool:
        interrupt, watermarks = self.interrupt, self.admission.watermarks
        if not watermarks.empty:
            self.status.enter(WatcherState.DRAINING)
        with anyio.move_on_after(PATIENCE_SECONDS):
            while not (watermarks.empty or interrupt.is_set):
                await interrupt.sleep(_LOOK_SECONDS)
        return not (watermarks.empty or interrupt.is_set)

    async def _back_off(self, decision: Decision) -> None:
        self._failures += 1
        delay = self.plan.backoff.delay(self._failures)
        self.status.errors.note(decision.message)
        self.status.counts.restarts += 1
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
