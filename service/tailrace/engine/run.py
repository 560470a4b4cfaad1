"""One run of a course: from its start position until a stop, an invalidate, or an error.

The handlers' lanes run beside the reader. A handler may leave the run, and others may join it.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import structlog

from tailrace.engine.checkpointer import Checkpointer
from tailrace.engine.course import Course
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.isolation import must_finish
from tailrace.engine.handle.skipped_history import record
from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.handler_runs import HandlerRuns
from tailrace.engine.in_flight import in_flight
from tailrace.engine.position.watermarks import Watermarks
from tailrace.engine.read.admission import Admission
from tailrace.engine.read.ending import Ending
from tailrace.engine.read.read_limit import ReadLimit
from tailrace.engine.read.reader import CLOSING_SECONDS, Reader, Stream
from tailrace.engine.read.row_reader import RowReader
from tailrace.engine.run_start import (
    HandlerStart,
    after_gap,
    begin_pause,
    begin_rows,
    beginnings,
    last_of,
    settle,
    tell_gap,
)
from tailrace.engine.shared_stream import SharedStream
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.errors import (
    CheckpointError,
    DeliveryInterrupted,
    TailraceError,
    TaskCancelled,
)
from tailrace.model import StartPoint
from tailrace.model.gap import Gap
from tailrace.model.start import NOW
from tailrace.stream import Interrupt


@dataclass(slots=True)
class Run:
    """Reads, delivers and saves until ``interrupt`` is set, by a stop or by a failed task.

    ``leads``: the handler at whose own position the stream begins, if any.
    """

    course: Course
    shared_stream: SharedStream
    interrupt: Interrupt
    start: StartPoint = NOW
    leads: str = ""
    events: int = 0
    replies: int = 0
    """Replies of its stream, including empty ones; the first is the reply to the aggregate."""
    begun: list[HandlerStart] = field(default_factory=list)
    handlers: HandlerRuns = field(init=False)
    _checkpointer: Checkpointer = field(init=False)
    _failure: Exception | None = None

    def __post_init__(self) -> None:
        self.handlers = HandlerRuns(self.course, self.shared_stream, self.interrupt, self._fail)

    async def run(self) -> Ending:
        """Whatever ends the run, running calls finish and none begins; then it saves."""
        course, scope = self.course, self.course.scope
        runtime, claim, desired = scope.runtime, scope.claim, scope.desired
        checkpoint = course.status.checkpoint = await claim.load(runtime.store)
        self.handlers.identity = identity = scope.identity
        await runtime.letters.claim(identity.scope, identity.epoch)
        await desired.load(runtime.desired_states)
        scope.begin_replays()
        await settle(course, identity, checkpoint)
        if desired.of(course.names[0]).paused:
            await begin_pause(course, identity)
            return Ending.PAUSED
        handlers = self.handlers
        deliveries = {each.name: handlers.delivery(each) for each in course.routed}
        with self.interrupt.calling(handlers.halt):
            with self.interrupt.interrupts() as asking:
                self.begun = await beginnings(
                    course, identity, course.status.checkpoint, deliveries
                )
            if asking.cancelled_caught or self.interrupt.is_set:
                return Ending.STOPPED
            return await self._begin()

    async def _begin(self) -> Ending:
        """Finds where the stream begins: where the handler does that stands last."""
        course, claim, last = self.course, self.course.scope.claim, self._last
        stored = claim.of(last.name)
        self.leads = last.name if last.position.own is not None else ""
        self.start = start = course.history.start(last.position, stored) or last.position.start
        scope = course.scope.plan.scope
        gap = course.history.gap(start, scope.name, last.position, stored)
        log = structlog.get_logger().bind(scope=scope.name)
        log.info("stream.starting", at=str(start), follows=str(scope), handlers=course.names)
        if gap is not None:
            self.begun = after_gap(course, self.begun, start)
            self.leads = self.leads if self.leads in course.names else ""
        if not course.alone:
            return await self._follow(gap)
        streams, most = course.scope.streams, course.scope.plan.catch_up_streams
        if streams.full:
            why = f"waits for one of the {most} streams of the scope for handlers that are behind"
            why = why if course.replay is None else "waits for the end of another replay"
            course.status.enter(WatcherState.WAITING, why)
        with self.interrupt.interrupts() as waiting:
            await streams.take(self.interrupt, course.is_down)
        if waiting.cancelled_caught:
            return Ending.STOPPED
        try:
            return await self._follow(gap)
        finally:
            streams.give_back(self.interrupt)

    @property
    def _last(self) -> HandlerStart:
        """The handler that stands last."""
        return last_of(self.begun)

    async def _follow(self, gap: Gap | None) -> Ending:
        """Builds the parts, opens the stream, and reads. ``gap``: the changes skipped, if any."""
        course, scope, interrupt = self.course, self.course.scope, self.interrupt
        plan, runtime, status = scope.plan, scope.runtime, course.status
        self.begun = begin_rows(course, self.begun, gap=gap is not None)
        handlers = self.handlers
        limit = ReadLimit(
            runtime.budget.share(own=course.replay is None), status, interrupt, handlers.make_room
        )
        start = min((e.position.time for e in self.begun if e.position.time), default=None)
        handlers.watermarks = status.watermark = Watermarks(start, limit.moved)
        saved = status.checkpoint
        status.committed_time = saved.position.cluster_time if saved else None
        for beginning in self.begun:
            handlers.add(beginning, self.start)
        self._checkpointer = handlers.checkpointer = Checkpointer(
            plan,
            runtime,
            handlers.identity,
            scope.claim,
            handlers.all,
            handlers.watermarks,
            status,
            scope.stop,
        )
        save_first = any(beginning.position.save_first for beginning in self.begun)
        save_first = save_first or any(map(self._has_new_snapshot, self.begun))
        admission = Admission(
            plan,
            runtime,
            course.rows,
            interrupt,
            limit,
            handlers.watermarks,
            handlers.fed,
            self._checkpointer,
            save_first=save_first,
            order=handlers.order,
        )
        reader = Reader(plan, runtime, status, course.rows, interrupt, admission, handlers.has_come)
        stream = reader.stream(self.start)
        try:
            with interrupt.interrupts() as opening:
                await stream.open()
            if opening.cancelled_caught:
                return Ending.STOPPED
            status.enter(WatcherState.CATCHING_UP)
            status.find = partial(in_flight, handlers.fed)
            if gap is not None:
                course.history.skipped()
                some = tuple(course.names) if len(course.names) < len(plan.routed) else None
                gap = replace(gap, until=status.stream.server_time, handlers=some)
                await record(gap, runtime.store, scope.claim.lease)
                await tell_gap(course, self.begun, gap)
                handlers.drop_unbegun()
            return await self._handle(reader, stream)
        finally:
            status.find = None
            self.events, self.replies = reader.events, reader.replies
            if self.events:
                course.history.progressed()
            with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                await stream.aclose()

    def _has_new_snapshot(self, begun: HandlerStart) -> bool:
        noted = self.course.scope.claim.of(begun.name)
        known = noted.position.snapshot if noted is not None else None
        return begun.position.position.snapshot != known

    async def _handle(self, reader: Reader, stream: Stream) -> Ending:
        """Runs the tasks. They raise only cancellations: any other failure is noted, and halts all.

        After an invalidate all lanes finish what was read. Otherwise the interrupt halts them.
        """
        until_drained = Interrupt()
        ending = Ending.STOPPED
        course, handlers = self.course, self.handlers
        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(self._save_regularly, until_drained, name="checkpointer")
                for handler in handlers.fed:
                    handlers.start(handler)
                    if handler.delivery is not None and handler.delivery.handler.ready is not None:
                        beside.start_soon(
                            self._opened, handler.delivery, until_drained, name="opening"
                        )
                reading_rows = anyio.CancelScope()
                rows = RowReader(
                    course.rows,
                    reader.admission.order,
                    handlers.fed,
                    reader.admission.limit,
                    course.status,
                    reader.admit_rows,
                    self._checkpointer.save,
                )
                beside.start_soon(self._read_rows, rows, reading_rows, name="rows")
                try:
                    with handlers.taking_others():
                        ending = await must_finish(reader.read, "the reader", stream)
                except TailraceError as error:
                    self._fail(error)
                reading_rows.cancel()
                course.status.enter(WatcherState.DRAINING)
                await handlers.drain()
                until_drained.set()
        finally:
            # A cancelled run saves what is handled; the lanes are cancelled with it.
            await self._save_last()
            for handler in handlers.fed:
                handler.watermark.abandon()
        if self._failure is not None:
            raise self._failure
        return ending if handlers.watermarks.empty else Ending.STOPPED

    def _fail(self, error: Exception) -> None:
        """Notes the first failure and ends this run; running calls finish."""
        self._failure = self._failure or error
        self.interrupt.set()

    async def _opened(self, delivery: Delivery, until: Interrupt) -> None:
        """Shows that a destination is down since the start, even if there is no event for it."""
        with suppress(DeliveryInterrupted), until.interrupts():
            await delivery.position.opened()

    # --- reading rows, and saving ----------------------------------------------------------------

    async def _read_rows(self, rows: RowReader, until: anyio.CancelScope) -> None:
        """Reads rows. A failure ends this run; the next run reads rows without a place again."""
        try:
            with until, self.interrupt.interrupts():
                await must_finish(rows.run, "the reader of documents")
        except TailraceError as error:
            self._fail(error)

    async def _save_regularly(self, until: Interrupt) -> None:
        try:
            await must_finish(self._checkpointer.run, "the checkpointer", until)
        except (CheckpointError, TaskCancelled) as error:
            self._fail(error)
        except anyio.get_cancelled_exc_class():
            self.interrupt.set()
            # Save now: a handler that ignores its cancellation keeps the run from its last save.
            await self._save_last()
            raise

    async def _save_last(self) -> None:
        # Also of those that have left: a call that ignores its cancellation keeps its lane.
        error = await self._checkpointer.save_last(self.handlers.all)
        self._failure = self._failure or error

    @property
    def joins(self) -> bool:
        """Whether its handler goes on in the shared stream, as everything before is handled."""
        came = self.joined is not None and not self.joined.left
        return came and self._failure is None and self.handlers.watermarks.empty

    @property
    def joined(self) -> HandlerRun | None:
        """Its handler's part in the shared stream, if that was attached there."""
        return self.handlers.joined

    @property
    def can_start_elsewhere(self) -> bool:
        """Whether there is a start point that the server has not refused."""
        last = self._last
        stored = self.course.scope.claim.of(last.name)
        return self.course.history.start(last.position, stored) is not None
