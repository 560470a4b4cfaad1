"""One life of a watcher: from a start point until a stop, an invalidate, or an error.

The nesting is the order of the end, read inside out: the reader stops, the lanes drain, the
checkpointer saves, the stream closes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

import anyio
import structlog

from service.engine.batch_lane import BatchLane
from service.engine.checkpointer import Checkpointer, Owner
from service.engine.delivery import Delivery
from service.engine.following import Following, Surroundings
from service.engine.in_flight import InFlight, Mark, Place
from service.engine.lanes import EventLanes, Lane
from service.engine.router import Wants
from service.engine.state import WatcherState, WatcherStatus
from service.errors import (
    CheckpointError,
    DriverError,
    StreamInterrupted,
    TailraceError,
    describe,
)
from service.model import Batch, Checkpoint, StartPoint
from service.model.gap import Gap
from service.stream import ChangeStream, Interrupt, Reply
from service.stream.resumable import reason

_LAST_READ_SECONDS = 2.0
"""Beyond the time that a read may wait for a change: behind a stop its reply is of no use."""
_LAST_SAVE_SECONDS = 5.0
_SMALL_REPLY_BYTES = 65536
_LARGE_REPLY_BYTES = 24 * 1024 * 1024
_PATIENCE_SECONDS = 1.0


class Ending(Enum):
    """Why a life ended without an error."""

    STOPPED = "stopped"
    INVALIDATED = "invalidated"


class Life:
    """Reads, hands over and remembers, once. Make another for the next life."""

    def __init__(
        self,
        following: Following,
        surroundings: Surroundings,
        status: WatcherStatus,
        deliveries: Sequence[Delivery],
        owner: Owner,
        mark: Mark,
        sequence: int,
        enter: Callable[[WatcherState, str], None],
    ) -> None:
        self.events = 0
        self.replies = 0
        self._following = following
        self._around = surroundings
        self._status = status
        self._entered = enter
        self._log = structlog.get_logger().bind(scope=owner.scope)
        self._in_flight = status.in_flight = InFlight(mark)
        status.read_time = mark.cluster_time
        self._checkpointer = Checkpointer(
            surroundings.store,
            owner,
            self._in_flight,
            sequence,
            self._saved,
        )
        self._deliveries = deliveries
        self._lanes = [
            self._lane(delivery, routed.wants)
            for delivery, routed in zip(deliveries, following.routed, strict=True)
        ]
        self._progress = anyio.Event()
        self._interrupt = Interrupt()
        self._failure: Exception | None = None
        self._broken = False
        self._placeless = mark.high_water is None and mark.event_token is None

    async def run(self, start: StartPoint, interrupt: Interrupt, gap: Gap | None = None) -> Ending:
        """Lives until ``interrupt`` (which a failing lane sets as well).

        A ``gap`` is what beginning at ``start`` skips: it is stored before anything is handled.

        Raises what ended it otherwise, after everything that ran has finished. Whatever happens,
        the watermark is saved last, within a bounded time even if the task is cancelled.
        """
        self._interrupt = interrupt
        for delivery in self._deliveries:
            delivery.wait_until(interrupt)
        stream = ChangeStream(
            self._around.driver,
            self._following.scope,
            self._following.options,
            start,
            observer=self,
            interrupt=interrupt,
        )
        try:
            with interrupt.interrupts() as opening:
                await stream.open()
            if opening.cancelled_caught:
                return Ending.STOPPED
            if gap is not None:
                await self._record(replace(gap, until=self._status.server_time))
            return await self._follow(stream)
        finally:
            with anyio.move_on_after(_LAST_SAVE_SECONDS, shield=True):
                await stream.aclose()

    async def _record(self, gap: Gap) -> None:
        await self._around.store.record_gap(gap)
        self._log.error(
            "history.skipped",
            since=gap.since and gap.since.as_datetime().isoformat(),
            until=gap.until and gap.until.as_datetime().isoformat(),
            reason=gap.reason,
        )

    async def _follow(self, stream: ChangeStream) -> Ending:
        """No task of this life raises, but by cancellation: a failure is noted, and all drain."""
        until_drained = Interrupt()
        ending = Ending.STOPPED
        try:
            async with anyio.create_task_group() as saving:
                saving.start_soon(self._save_regularly, until_drained, name="checkpointer")
                async with anyio.create_task_group() as handling:
                    for lane in self._lanes:
                        handling.start_soon(self._run_lane, lane, name="lanes")
                    ending = await self._read(stream)
                    self._drain(whole=ending is Ending.INVALIDATED)
                until_drained.set()
        finally:
            self._give_back()
            await self._save_last()
        if self._failure is not None:
            raise self._failure
        return ending

    def _enter(self, state: WatcherState, reason: str = "") -> None:
        self._entered(state, reason)

    def _fail(self, error: Exception) -> None:
        """The first failure ends this life; what is running finishes."""
        self._failure = self._failure or error
        self._interrupt.set()

    # --- reading ---------------------------------------------------------------------------

    async def _read(self, stream: ChangeStream) -> Ending:
        interrupt, handlers = self._interrupt, len(self._lanes)
        patience = (self._following.options.max_await_time_ms or 0) / 1000 + _LAST_READ_SECONDS
        while not interrupt.is_set:
            try:
                with interrupt.interrupts(patience) as reading:
                    batch = await stream.next_batch()
                if reading.cancelled_caught:
                    self._log.warning("stream.abandoned", reason="the last read did not end")
                    break
            except StreamInterrupted:
                break
            except TailraceError as error:
                self._fail(error)
                break
            self.replies += 1
            if interrupt.is_set and len(batch):
                break  # nothing new is begun: it will be read again
            self._count(batch)
            if handlers and not await self._afford(batch):
                break
            state = self._status.read(batch)
            places = self._in_flight.admit(batch, handlers)
            if self._placeless:
                await self._save_first()
            if places:
                for lane in self._lanes:
                    lane.feed(places)
            if stream.invalidated:
                self._around.metrics.invalidates.labels(self._following.scope.name).inc()
                self._log.info("stream.invalidated")
                return Ending.INVALIDATED
            self._enter(state)
            if batch.size < _SMALL_REPLY_BYTES:
                # Handlers first: the driver's part of the next read would double their latency.
                await anyio.lowlevel.checkpoint()
            if places:
                await self._until_hungry(batch, len(places))
                self._enter(state)
            del batch, places  # a reply may be large, and the next one is about to come
        return Ending.STOPPED

    async def _afford(self, batch: Batch) -> bool:
        """Takes the batch's bytes from the budget; says whether it was not interrupted."""
        if not batch.size or self._around.budget.try_acquire(batch.size):
            return True
        self._enter(WatcherState.PAUSED)
        with self._interrupt.interrupts() as scope:
            await self._around.budget.acquire(batch.size)
        return not scope.cancelled_caught

    async def _until_hungry(self, batch: Batch, places: int) -> None:
        """Waits while even the quickest handler has a whole reply before it.

        So one reply is read ahead and no more; slower handlers are bounded by the budget. Behind
        a large reply none is: it stays in memory until its last event is handled. A wait that
        lasts shows: then it is not the server that is silent.
        """
        ahead = places if batch.size < _LARGE_REPLY_BYTES else 0
        while min(lane.backlog for lane in self._lanes) > ahead or not (
            ahead or self._in_flight.empty
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
        name = self._following.scope.name
        for operation, count in batch.operations().items():
            self._around.metrics.events.labels(name, operation).inc(count)

    # --- handling --------------------------------------------------------------------------

    def _lane(self, delivery: Delivery, wants: Wants | None) -> Lane:
        if delivery.handler.on_events is not None:
            return BatchLane(delivery, wants, self._finished, self._opened)
        workers = min(delivery.handler.concurrency, self._following.lanes)
        return EventLanes(delivery, wants, workers, self._finished, self._opened)

    async def _run_lane(self, lane: Lane) -> None:
        """A lane that fails ends this life: the others finish what they have begun, no more.

        They cannot move the watermark past the failure, and all behind it will come again.
        """
        try:
            await lane.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others drain first
            self._broken = True
            self._fail(error)
            for other in self._lanes:
                other.close(other.opened)

    def _finished(self, place: Place) -> None:
        freed = self._in_flight.finish(place)
        if freed:
            self._around.budget.release(freed)
            self._progress.set()

    def _opened(self) -> None:
        self._progress.set()

    def _drain(self, *, whole: bool) -> None:
        """Lets the lanes end: after all that was read, or after what any of them has begun.

        What one handler has begun, the others finish too: nothing is handed over twice after a
        clean stop.
        """
        self._enter(WatcherState.DRAINING)
        if self._broken:
            return
        upto = None if whole else max((lane.opened for lane in self._lanes), default=-1)
        for lane in self._lanes:
            lane.close(upto)

    def _give_back(self) -> None:
        """What is not finished leaves the budget with this life; it will be read again."""
        if self._in_flight.size and self._lanes:
            self._around.budget.release(self._in_flight.size)
        self._in_flight.size = self._in_flight.events = 0

    # --- remembering -----------------------------------------------------------------------

    async def _save_regularly(self, until: Interrupt) -> None:
        try:
            await self._checkpointer.run(self._following.checkpoint_seconds, until)
        except CheckpointError as error:
            self._fail(error)

    async def _save_first(self) -> None:
        """Where it all begins, before a change is handled.

        A crash within the first interval would else begin at a later "now", and skip changes.
        """
        self._placeless = False
        try:
            with self._interrupt.interrupts(_LAST_SAVE_SECONDS):
                await self._checkpointer.save()
        except CheckpointError as error:
            self._fail(error)

    async def _save_last(self) -> None:
        """The last word, even of a task that is being cancelled."""
        with anyio.move_on_after(_LAST_SAVE_SECONDS, shield=True) as bounded:
            try:
                await self._checkpointer.save()
            except CheckpointError as error:
                self._failure = self._failure or error
                self._log.warning("checkpoint.not_saved", error=describe(error))
        if bounded.cancelled_caught:
            self._log.warning("checkpoint.not_saved", error="the store did not answer in time")

    def _saved(self, checkpoint: Checkpoint, error: CheckpointError | None) -> None:
        outcome = "error" if error else "ok"
        self._around.metrics.saves.labels(checkpoint.scope, outcome).inc()
        if error is None:
            self._status.checkpoint = checkpoint

    # --- told by the stream ----------------------------------------------------------------

    def round_trip(self, reply: Reply) -> None:
        """The server answered."""
        self._status.round_trip(reply.operation_time)
        if self._status.state is WatcherState.STARTING:
            self._enter(WatcherState.STREAMING)

    def resuming(self, error: DriverError) -> None:
        """The stream looks for a server: while that lasts, it does not read."""
        self._status.failed(describe(error))
        self._enter(WatcherState.STARTING, f"resumes after: {describe(error)}")

    def resumed(self, error: DriverError) -> None:
        """The stream went on after an error."""
        self._status.resumes += 1
        name = self._following.scope.name
        self._around.metrics.resumes.labels(name, reason(error)).inc()
        self._log.info("stream.resumed", reason=reason(error), error=describe(error))
