"""Reads one stream: takes a place in line for each reply, and waits while there is no room.

Before it stands the change stream, behind it the lanes. It reads one reply ahead of the quickest
handler and no more, within the byte budget of the process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum

import anyio
import structlog
from bson.timestamp import Timestamp
from prometheus_client import Counter

from tailrace.engine.handle.lane import Lane
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.read.byte_budget import Share
from tailrace.engine.read.transactions import Transactions
from tailrace.engine.scope_plan import Runtime, ScopePlan
from tailrace.engine.status import READING, WatcherState, WatcherStatus
from tailrace.errors import DriverError, StreamInterrupted, describe
from tailrace.event import Batch
from tailrace.event.batch import CHUNK
from tailrace.event.reply import Reply
from tailrace.stream import ChangeStream, Interrupt
from tailrace.stream.resumable import reason

_LAST_READ_SECONDS = 2.0
"""Beyond the time that a read may wait for a change: behind a stop its reply is of no use."""
_SMALL_REPLY_BYTES = 65536
_LARGE_REPLY_BYTES = 24 * 1024 * 1024
_PATIENCE_SECONDS = 1.0

Enter = Callable[[WatcherState, str], None]
"""Told of each state that the watcher enters, and why."""


class Ending(Enum):
    """Why a run ended without an error."""

    STOPPED = "stopped"
    INVALIDATED = "invalidated"


class Reader:
    """The reading side of one run; it observes the stream that it reads as well.

    ``begins`` is awaited before the first change is handed over, where no position is known yet
    (or that is asked for by ``begins_first``).
    """

    def __init__(
        self,
        plan: ScopePlan,
        runtime: Runtime,
        status: WatcherStatus,
        share: Share,
        watermark: Watermark,
        lanes: Sequence[Lane],
        enter: Enter,
        begins: Callable[[], Awaitable[None]],
        begins_first: bool = False,
    ) -> None:
        self.events = 0
        self.replies = 0
        self._name = plan.scope.name
        self._await_seconds = (plan.options.max_await_time_ms or 0) / 1000
        self._runtime = runtime
        self._status = status
        self._share = share
        self._watermark = watermark
        self._lanes = lanes
        self._entered = enter
        self._begins = begins
        start = watermark.position
        self._placeless = start.high_water is None and start.event_token is None
        self._begins_first = begins_first or self._placeless
        self._progress = anyio.Event()
        self._interrupt = Interrupt()
        self._place_events, self._place_bytes = _smallest_call(plan)
        self._transactions = _transactions(plan, runtime)
        self._counters: dict[str, Counter] = {}
        self._log = structlog.get_logger().bind(scope=self._name)

    def progressed(self) -> None:
        """A lane took something up, or something is finished: there may be room."""
        self._progress.set()

    async def read(self, stream: ChangeStream, interrupt: Interrupt) -> Ending:
        """Reads until ``interrupt`` or an invalidate; raises what the stream raises otherwise."""
        self._interrupt = interrupt
        ending = Ending.STOPPED
        with interrupt.interrupts(self._await_seconds + _LAST_READ_SECONDS) as reading:
            ending = await self._read(stream)
        if reading.cancelled_caught:
            self._log.warning("stream.abandoned", reason="the last read did not end")
        return ending

    async def _read(self, stream: ChangeStream) -> Ending:
        while not self._interrupt.is_set:
            try:
                batch = await stream.next_batch()
            except StreamInterrupted:
                break
            self.replies += 1
            if self._interrupt.is_set and len(batch):
                break  # nothing new is begun: it will be read again
            self._status.arrived(batch)
            places = await self._take(batch, stream.invalidated)
            size = batch.size
            if size < _SMALL_REPLY_BYTES:
                # Handlers first: what follows, and the driver's part of the next read, would
                # double their latency.
                await anyio.lowlevel.checkpoint()
            state = self._status.read(batch, opening=self.replies == 1)
            self._count(batch)
            if places is None:
                break
            if stream.invalidated:
                self._runtime.metrics.invalidates.labels(self._name).inc()
                self._log.info("stream.invalidated")
                return Ending.INVALIDATED
            self._enter(state)
            del batch  # a reply may be large, and the next one is about to come
            if size and self._lanes:
                await self._until_hungry(size, places)
                self._enter(state)
        return Ending.STOPPED

    async def _take(self, batch: Batch, invalidated: bool) -> int | None:
        """Gives the reply its places and the lanes their work.

        ``invalidated`` is whether the stream has ended with it. Returns how many places they are;
        ``None`` if a stop came before that.
        """
        if self._placeless and len(batch):
            self._begin_at(batch)
        fits = not self._place_bytes or batch.size <= self._place_bytes
        size = self._place_events if fits else CHUNK
        if self._transactions is None:
            chunks = batch.chunks(size)
        else:
            batch, chunks = self._transactions.take(batch, size)
        if self._lanes and chunks:
            needed = sum([chunk.size for chunk in chunks])
            if not self._share.try_acquire(needed) and not await self._afford(batch, needed):
                return None
        lanes = len(self._lanes)
        places = self._watermark.admit(batch, chunks, lanes, invalidated=invalidated)
        self._status.placed(but_some=self._transactions is not None and self._transactions.holds)
        if self._begins_first:
            self._placeless = self._begins_first = False
            await self._begins()
        if places:
            for lane in self._lanes:
                lane.feed(places)
        return len(places)

    def _begin_at(self, batch: Batch) -> None:
        time = batch.part(0, 1).last().cluster_time
        if time is not None:
            self._watermark.begin_at(time)

    async def _afford(self, batch: Batch, size: int) -> bool:
        """Waits for a reply's bytes of the budget; says whether it was not interrupted."""
        self._status.read(batch)
        self._enter(WatcherState.PAUSED)
        for lane in self._lanes:
            lane.hurry()
        with self._interrupt.interrupts() as scope:
            await self._share.acquire(size)
        return not scope.cancelled_caught

    async def _until_hungry(self, size: int, places: int) -> None:
        """Waits while even the quickest handler has a whole reply, of so many places, before it.

        So one reply is read ahead and no more; slower handlers are bounded by the budget. Behind
        a large reply none is: it stays in memory while any of its events is needed. A wait that
        lasts shows: then it is not the server that is silent.
        """
        ahead = max(places, 1) if size < _LARGE_REPLY_BYTES else 0
        if not ahead:
            for lane in self._lanes:
                lane.hurry()
        while min(lane.backlog for lane in self._lanes) > ahead or (
            not ahead and self._watermark.size
        ):
            self._progress = anyio.Event()
            with self._interrupt.interrupts(), anyio.move_on_after(_PATIENCE_SECONDS) as patience:
                await self._progress.wait()
            if self._interrupt.is_set:
                return
            if patience.cancelled_caught:
                self._enter(WatcherState.PAUSED)

    def _count(self, batch: Batch) -> None:
        self.events += len(batch)
        self._status.events += len(batch)
        for operation, count in batch.operations().items():
            counter = self._counters.get(operation)
            if counter is None:
                counter = self._runtime.metrics.events.labels(self._name, operation)
                self._counters[operation] = counter
            counter.inc(count)

    def _enter(self, state: WatcherState, reason: str = "") -> None:
        self._entered(state, reason)

    # --- told by the stream ----------------------------------------------------------------

    def round_trip(self, reply: Reply) -> None:
        """The server answered. What it says of an aggregate says nothing of the changes behind."""
        self._status.round_trip(reply.operation_time)
        if self._status.state is WatcherState.STARTING:
            self._enter(WatcherState.CATCHING_UP)

    def at_work(self, server_time: Timestamp | None) -> None:
        """It answered on another connection, and searches its oplog: that is no silence."""
        self._status.round_trip(server_time)
        if self._status.state in READING:
            self._enter(WatcherState.CATCHING_UP)

    def resuming(self, error: DriverError) -> None:
        """The stream looks for a server: while that lasts, it does not read."""
        self._status.failed(describe(error))
        self._enter(WatcherState.STARTING, f"resumes after: {describe(error)}")

    def resumed(self, error: DriverError) -> None:
        """The stream went on after an error."""
        self._status.resumes += 1
        self._runtime.metrics.resumes.labels(self._name, reason(error)).inc()
        self._log.info("stream.resumed", reason=reason(error), error=describe(error))


def _smallest_call(plan: ScopePlan) -> tuple[int, int]:
    """Events and bytes (0: no bound) that a place may have, with a sequence of them in each call.

    A call finishes its events together, so it gains nothing from smaller places. Workers that take
    single events do.
    """
    handlers = [routed.handler for routed in plan.routed]
    if any(handler.on_events is None for handler in handlers):
        return CHUNK, 0
    events = min((handler.batch_size for handler in handlers), default=CHUNK)
    bounds = (handler.batch_bytes for handler in handlers if handler.batch_bytes)
    return max(events, CHUNK), min(bounds, default=0)


def _transactions(plan: ScopePlan, runtime: Runtime) -> Transactions | None:
    handlers = [routed.handler for routed in plan.routed]
    if not any(handler.whole_transactions for handler in handlers):
        return None
    events = min(handler.batch_size for handler in handlers if handler.whole_transactions)
    return Transactions(plan.scope.name, runtime.budget.limit, events)
