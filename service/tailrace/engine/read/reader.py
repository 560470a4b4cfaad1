"""Reads a stream: takes a place on the watermark for each reply, and feeds the lanes.

Before a run ends, everything begun must be handled. Where one handler call hangs, that would keep
every other document waiting: then a stream that failed is opened again behind what was read last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine.error_policy import Decision, decide
from tailrace.engine.handle.frames import waits_for
from tailrace.engine.handle.lane import Lane
from tailrace.engine.position.checkpointer import SAVE_SECONDS, Checkpointer
from tailrace.engine.position.watermark import Place, Watermark
from tailrace.engine.read.byte_budget import ReadAhead
from tailrace.engine.read.rows import Line, Rows, RowSource, split, stands
from tailrace.engine.read.transactions import Transactions
from tailrace.engine.scope_plan import Runtime, ScopePlan
from tailrace.engine.status import Status, WatcherState
from tailrace.errors import DriverError, StreamInterrupted
from tailrace.event import Batch, Chunk
from tailrace.event.batch import CHUNK
from tailrace.model import StartPoint
from tailrace.stream import ChangeStream, Interrupt

_LAST_READ_SECONDS = 2.0
"""Beyond the time that a read may wait for a change: after a stop its reply is of no use."""
_SMALL_REPLY_BYTES = 65536
PATIENCE_SECONDS = 2.0
"""How long handlers may take before the stream is opened without waiting for them."""
_LOOK_SECONDS = 0.02
CLOSING_SECONDS = 5.0


class Ending(Enum):
    """Why a run ended without an error."""

    STOPPED = "stopped"
    INVALIDATED = "invalidated"


@dataclass(slots=True)
class Reader:
    """The reading side of one run; ``save_first``: where that begins, before the first change."""

    plan: ScopePlan
    runtime: Runtime
    status: Status
    interrupt: Interrupt
    read_ahead: ReadAhead
    watermark: Watermark
    lanes: Sequence[Lane]
    checkpointer: Checkpointer
    save_first: bool = False
    rows: RowSource | None = None
    line: Line = field(default_factory=Line)
    events: int = 0
    replies: int = 0
    _place_events: int = field(init=False)
    _place_bytes: int = field(init=False)
    _transactions: Transactions | None = None
    _failures: int = 0

    def __post_init__(self) -> None:
        self.save_first = self.save_first or not self.watermark.position.has_token
        self._place_events, self._place_bytes = _smallest_call(self.plan)
        handlers = [routed.handler for routed in self.plan.routed]
        whole = [each.batch_size for each in handlers if each.whole_transactions]
        if whole:
            limit = self.runtime.budget.limit
            self._transactions = Transactions(self.plan.scope.name, limit, min(whole))

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
        """Reads until a stop or an invalidate, over as many streams as it takes; closes them.

        Raises the stream's error where nothing is in flight any more, or no restart would help.
        """
        while True:
            replies = self.replies
            try:
                return await self._read_one(stream)
            except DriverError as error:
                if self.replies > replies + 1:
                    self._failures = 0
                opened = await self._opened(stream, error)
                if opened is None:
                    return Ending.STOPPED
            finally:
                with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                    await stream.aclose()
            stream = opened

    async def _read_one(self, stream: ChangeStream) -> Ending:
        await_seconds = (self.plan.options.max_await_time_ms or 0) / 1000
        with self.interrupt.interrupts(await_seconds + _LAST_READ_SECONDS):
            return await self._read(stream)
        log = structlog.get_logger().bind(scope=self.plan.scope.name)
        log.warning("stream.abandoned", reason="the last read did not end")
        return Ending.STOPPED

    async def _read(self, stream: ChangeStream) -> Ending:
        opening = wait = True
        while not self.interrupt.is_set:
            try:
                batch = await stream.next_batch(wait=wait)
            except StreamInterrupted:
                break
            self.replies += 1
            events, size = len(batch), batch.size
            if self.interrupt.is_set and events:
                break  # nothing new is begun: it will be read again
            self.watermark.read(batch)
            ended = stream.invalidated
            places = await self._admit(batch, opening=opening, invalidated=ended)
            # Rows wait to hear whether that was all of its time.
            wait = (
                opening or self.rows is None or not self.rows.active or self.line.time is not None
            )
            opening = False
            if size < _SMALL_REPLY_BYTES:
                # Handlers first: what follows, and the driver's part of the next read, would
                # double their latency.
                await anyio.lowlevel.checkpoint()
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
            del batch  # a reply may be large, and the next one is about to come
            if size and self.lanes:
                await self.read_ahead.until_hungry(size, places, self.lanes, self.watermark)
                self.status.enter(state)
        return Ending.STOPPED

    async def _admit(self, batch: Batch, *, opening: bool, invalidated: bool) -> int | None:
        """Gives the reply its places, and those to the lanes; returns how many they are.

        ``opening`` is whether the stream begins with it, ``invalidated`` whether it has ended.
        ``None`` if a stop came first.
        """
        reply = batch
        if self.save_first and len(batch):
            time = batch.part(0, 1).last().cluster_time
            if time is not None:
                self.watermark.begin_at(time)
        size = self._chunk_size(batch)
        if self._transactions is None:
            chunks = batch.chunks(size)
        else:
            batch, chunks = self._transactions.cut(batch, size)
        if self.lanes and chunks:
            needed = sum([chunk.size for chunk in chunks])
            if not await self.read_ahead.acquire(needed, self.lanes):
                return None
        if self.rows is None:
            return await self._append(batch, chunks, invalidated=invalidated)
        time, whole = None, False
        if opening:
            self.line.start = reply.token
        elif self.rows.active and not invalidated:
            sharded = self.runtime.cluster.name == "mongos"
            time, whole = stands(reply, self.line.start, sharded=sharded)
        return await self._in_turn(batch, chunks, time, whole=whole, invalidated=invalidated)

    async def _in_turn(
        self,
        batch: Batch,
        chunks: list[Chunk],
        time: Timestamp | None,
        *,
        whole: bool,
        invalidated: bool,
    ) -> int:
        """Gives the reply its places in its turn, or in two: up to a ``time`` within it."""
        line, places = self.line, 0
        if len(batch):
            line.changed_at = anyio.current_time()
        elif line.turn.locked() and not invalidated:
            return 0  # a bookmark is not worth waiting: changes may come meanwhile
        if time is not None and not whole:
            early, chunks = split(chunks, time)
            async with line.turn:
                if early:
                    places = await self._append(Batch(batch.buffer, early[-1].bounds, None), early)
                line.time = time
            await anyio.lowlevel.checkpoint()  # it is the turn of the rows, if they wait for it
        async with line.turn:
            places += await self._append(batch, chunks, invalidated=invalidated)
            line.time = time if whole or not len(batch) else None
        return places

    async def _append(
        self, batch: Batch, chunks: Sequence[Chunk], *, invalidated: bool = False
    ) -> int:
        places = self.watermark.admit(batch, chunks, len(self.lanes), invalidated=invalidated)
        return await self._feed(places)

    async def admit_rows(self, rows: Rows) -> int | None:
        """Gives rows their places, as :meth:`_admit` does a reply; in their turn."""
        chunks = rows.batch.chunks(self._chunk_size(rows.batch))
        if self.lanes and not await self.read_ahead.acquire(rows.batch.size, self.lanes):
            return None
        lanes = len(self.lanes)
        places = await self._feed(
            self.watermark.admit_rows(chunks, lanes, rows.time, rows.progress)
        )
        self._count(rows.batch)
        return places

    async def _feed(self, places: list[Place]) -> int:
        if self.save_first:
            self.save_first = False
            # Else a crash within the first interval would begin at a later "now".
            with self.interrupt.interrupts(SAVE_SECONDS):
                await self.checkpointer.save(first=True)
        if places:
            for lane in self.lanes:
                lane.feed(places)
        return len(places)

    def _chunk_size(self, batch: Batch) -> int:
        fits = not self._place_bytes or batch.size <= self._place_bytes
        return self._place_events if fits else CHUNK

    def _count(self, batch: Batch) -> None:
        self.events += len(batch)
        self.status.events += len(batch)
        for operation, count in batch.operations().items():
            self.runtime.metrics.events.labels(self.plan.scope.name, operation).inc(count)

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


def _smallest_call(plan: ScopePlan) -> tuple[int, int]:
    """Events and bytes (0: no bound) of a place: of a call, where all handlers take sequences."""
    handlers = [routed.handler for routed in plan.routed]
    if any(handler.on_events is None for handler in handlers):
        return CHUNK, 0
    events = min((handler.batch_size for handler in handlers), default=CHUNK)
    bounds = (handler.batch_bytes for handler in handlers if handler.batch_bytes)
    return max(events, CHUNK), min(bounds, default=0)
