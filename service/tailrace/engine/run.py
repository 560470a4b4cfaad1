"""One run of a watcher: from a start point until a stop, an invalidate, or an error.

The nesting is the order of the end, read inside out: the reader stops, the lanes drain, the
checkpointer saves, the stream closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio
import structlog

from tailrace.engine.handle.batch_lane import BatchLane
from tailrace.engine.handle.commit_lane import CommitLane
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.document_lanes import EventLanes
from tailrace.engine.handle.isolation import required
from tailrace.engine.handle.lane import Lane
from tailrace.engine.handle.router import Wants
from tailrace.engine.ports import Owner
from tailrace.engine.position.checkpointer import Checkpointer
from tailrace.engine.position.final_position import final_position
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.start_position import RunStart
from tailrace.engine.position.watermark import Place, Watermark
from tailrace.engine.read.reader import Ending, Enter, Reader
from tailrace.engine.read.reopening import Reopening
from tailrace.engine.scope_plan import Runtime, ScopePlan
from tailrace.engine.status import WatcherState, WatcherStatus
from tailrace.errors import CheckpointError, TailraceError, TaskCancelled, describe
from tailrace.model import Checkpoint, StartPoint
from tailrace.model.gap import Gap
from tailrace.stream import ChangeStream, Interrupt

_LAST_SAVE_SECONDS = 5.0


class Run:
    """Reads, hands over and remembers, once. Make another for the next run."""

    def __init__(
        self,
        plan: ScopePlan,
        runtime: Runtime,
        status: WatcherStatus,
        deliveries: Sequence[Delivery],
        owner: Owner,
        start: RunStart,
        sequence: int,
        enter: Enter,
    ) -> None:
        self._plan = plan
        self._runtime = runtime
        self._status = status
        self._share = runtime.budget.share()
        self._entered = enter
        self._log = structlog.get_logger().bind(scope=owner.scope)
        self._watermark = Watermark(start.position)
        status.begin(self._watermark)
        self._checkpointer = Checkpointer(
            runtime.store,
            owner,
            self._watermark,
            sequence,
            start.stored,
            self._saved,
        )
        self._deliveries = deliveries
        self._lanes = [
            self._lane(delivery, routed.wants, start.before.get(delivery.name))
            for delivery, routed in zip(deliveries, plan.routed, strict=True)
        ]
        self._reader = Reader(
            plan,
            runtime,
            status,
            self._share,
            self._watermark,
            self._lanes,
            enter,
            self._save_first,
            start.save_first,
        )
        self._reading = Reopening(plan, runtime, status, self._watermark, self._reader, enter)
        self._interrupt = Interrupt()
        self._failure: Exception | None = None
        self._broken = False
        self.unsaved = ""
        """Once this run is over: why the store lacks its watermark, if it does."""

    @property
    def events(self) -> int:
        """How many events were read."""
        return self._reader.events

    @property
    def sequence(self) -> int:
        """The highest sequence that a save was tried with: the next run goes on from it."""
        return self._checkpointer.sequence

    @property
    def replies(self) -> int:
        """How many replies came, empty ones too."""
        return self._reader.replies

    async def run(self, start: StartPoint, interrupt: Interrupt, gap: Gap | None = None) -> Ending:
        """Runs until ``interrupt`` (which a failing lane sets as well).

        A ``gap`` is what beginning at ``start`` skips: it is stored before anything is handled.

        Raises what ended it otherwise, after everything that ran has finished. Whatever happens,
        the watermark is saved last, within a bounded time even if the task is cancelled.
        """
        self._interrupt = interrupt
        for delivery in self._deliveries:
            delivery.wait_until(interrupt)
        stream = ChangeStream(
            self._runtime.driver,
            self._plan.scope,
            self._plan.options,
            start,
            observer=self._reader,
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
        await self._runtime.store.record_gap(gap)
        for delivery in self._deliveries:
            await delivery.skipped(gap)
        self._log.error(
            "history.skipped",
            since=gap.since and gap.since.as_datetime().isoformat(),
            until=gap.until and gap.until.as_datetime().isoformat(),
            reason=gap.reason,
        )

    async def _follow(self, stream: ChangeStream) -> Ending:
        """No task of this run raises, but by cancellation: a failure is noted, and all drain."""
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

    async def _read(self, stream: ChangeStream) -> Ending:
        try:
            return await required(self._reading.read, "the reader", stream, self._interrupt)
        except TailraceError as error:
            self._fail(error)
            return Ending.STOPPED

    def _fail(self, error: Exception) -> None:
        """The first failure ends this run; what is running finishes."""
        self._failure = self._failure or error
        self._interrupt.set()

    # --- handling --------------------------------------------------------------------------

    def _lane(self, delivery: Delivery, wants: Wants | None, before: HandledBefore | None) -> Lane:
        handler = delivery.handler
        if handler.on_events is None:
            workers = min(handler.concurrency, self._plan.lanes)
            return EventLanes(delivery, wants, workers, self._finished, self._opened, before)
        common = delivery, wants, self._finished, self._opened, before
        if handler.commit is None:
            return BatchLane(*common)
        return CommitLane(*common, self._took, self._committed, self._holds)

    async def _run_lane(self, lane: Lane) -> None:
        """A lane that fails ends this run: the others finish what they have begun, no more.

        They cannot move the watermark past the failure, and all behind it will come again.
        """
        try:
            await required(lane.run, "the task of a handler's lane")
        except Exception as error:  # noqa: BLE001 - whatever it is, the others drain first
            self._broken = True
            self._fail(error)
            for other in self._lanes:
                other.close(other.opened)

    def _finished(self, *places: Place) -> None:
        self._release(self._watermark.finish(*places))

    def _took(self, *places: Place) -> None:
        self._release(self._watermark.take(*places))

    def _committed(self, *places: Place) -> None:
        self._release(self._watermark.commit(*places))

    def _holds(self, handler: str, size: int) -> None:
        self._release(self._watermark.hold(handler, size))

    def _release(self, freed: int) -> None:
        self._status.finished()
        if freed:
            self._share.release(freed)
            self._reader.progressed()

    def _opened(self) -> None:
        self._reader.progressed()

    def _drain(self, *, whole: bool) -> None:
        """Lets the lanes end: after all that was read, or after what any of them has begun.

        What one handler has begun, the others finish too: nothing is handed over twice after a
        clean stop.
        """
        self._entered(WatcherState.DRAINING, "")
        if self._broken:
            return
        upto = None if whole else max((lane.opened for lane in self._lanes), default=-1)
        for lane in self._lanes:
            lane.close(upto)

    def _give_back(self) -> None:
        """What is not finished leaves the budget with this run; it will be read again."""
        if self._watermark.size and self._lanes:
            self._share.release(self._watermark.size)
        self._watermark.size = self._watermark.events = 0

    async def _save_regularly(self, until: Interrupt) -> None:
        try:
            await required(
                self._checkpointer.run,
                "the checkpointer",
                self._plan.checkpoint_seconds,
                until,
            )
        except (CheckpointError, TaskCancelled) as error:
            self._fail(error)
        except anyio.get_cancelled_exc_class():
            # Now already: a handler that takes no notice keeps the run from its last word.
            await self._save_last()
            raise

    async def _save_first(self) -> None:
        """Where it all begins, before a change is handled.

        A crash within the first interval would else begin at a later "now", and skip changes.
        """
        try:
            with self._interrupt.interrupts(_LAST_SAVE_SECONDS):
                await self._checkpointer.save(first=True)
        except CheckpointError as error:
            self._fail(error)

    async def _save_last(self) -> None:
        """The last word, even of a task that is being cancelled: what is handled, to the event."""
        with anyio.move_on_after(_LAST_SAVE_SECONDS, shield=True) as bounded:
            self.unsaved = ""
            try:
                handlers = [delivery.handler for delivery in self._deliveries]
                await self._checkpointer.save(
                    final_position(self._watermark, handlers, self._lanes)
                )
            except CheckpointError as error:
                self._failure = self._failure or error
                self.unsaved = describe(error)
        if bounded.cancelled_caught:
            self.unsaved = "the store did not answer in time"
        if self.unsaved:
            self._log.warning("checkpoint.not_saved", error=self.unsaved)

    def _saved(self, checkpoint: Checkpoint, error: CheckpointError | None) -> None:
        outcome = "error" if error else "ok"
        self._runtime.metrics.saves.labels(checkpoint.scope, outcome).inc()
        if error is None:
            self._status.saved(checkpoint)
