"""One run of a course: from its start position until a stop, an invalidate, or an error.

The handlers' lanes run beside the reader. A handler may leave the run, and others may join it.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import structlog

from tailrace.engine.checkpointer import Checkpointer
from tailrace.engine.course import Course
from tailrace.engine.handle.commit_delivery import CommitDelivery
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.isolation import required
from tailrace.engine.handle.lane_kinds import lane_of
from tailrace.engine.handle.retry import Retry
from tailrace.engine.handle.skipped_history import record
from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.in_flight import in_flight
from tailrace.engine.plan.router import Routed
from tailrace.engine.ports import RunIdentity
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.position.watermarks import Watermarks
from tailrace.engine.read.admission import Admission
from tailrace.engine.read.read_limit import ReadLimit
from tailrace.engine.read.reader import CLOSING_SECONDS, Ending, Reader, Stream
from tailrace.engine.read.row_reader import RowReader
from tailrace.engine.run_start import HandlerStart, after_gap, beginnings, least_snapshot, settle
from tailrace.engine.shared_stream import SharedStream
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.errors import (
    CheckpointError,
    DeadLetterError,
    DeliveryInterrupted,
    LeaseLost,
    TailraceError,
    TaskCancelled,
)
from tailrace.model import Progress, ResumeToken, StartPoint
from tailrace.model.gap import Gap
from tailrace.model.progress import NOTHING
from tailrace.model.start import NOW
from tailrace.model.subscription import Subscription
from tailrace.stream import Interrupt, fingerprint

_OF_THE_SCOPE = (LeaseLost, DeadLetterError)
"""Errors of a lane that concern every handler of the scope."""
PATIENCE_SECONDS = 1.0
"""After an invalidate, how long handlers wait for a slower one before it leaves them."""


@dataclass(slots=True)
class Run:
    """Reads, delivers and saves until ``interrupt`` is set, by a stop or by a failed task.

    ``meeting``: where handlers come back to the shared stream. ``leads``: the handler at whose own
    position the stream begins, if any.
    """

    course: Course
    meeting: SharedStream
    interrupt: Interrupt
    start: StartPoint = NOW
    leads: str = ""
    events: int = 0
    replies: int = 0
    """Replies of its stream, including empty ones; the first is the reply to the aggregate."""
    begun: list[HandlerStart] = field(default_factory=list)
    handlers: list[HandlerRun] = field(default_factory=list)
    """Those that it feeds."""
    joined: HandlerRun | None = None
    """The handler's part in the shared stream, if this run ended because it was attached there."""
    _all: list[HandlerRun] = field(default_factory=list)
    """Also those that have left it, and still end a call."""
    _identity: RunIdentity = field(init=False)
    _watermarks: Watermarks = field(init=False)
    _checkpointer: Checkpointer = field(init=False)
    _waits: dict[str, Interrupt] = field(default_factory=dict)
    """By handler, what ends its waits."""
    _failure: Exception | None = None

    async def run(self) -> Ending:
        """Whatever ends the run, running calls finish and none begins; then it saves."""
        course, scope = self.course, self.course.scope
        plan, runtime, claim, standing = scope.plan, scope.runtime, scope.claim, scope.standing
        checkpoint = course.status.checkpoint = await claim.load(runtime.store)
        self._identity = identity = RunIdentity(
            plan.scope.name,
            str(runtime.cluster),
            fingerprint(plan.scope, plan.options),
            claim.epoch,
        )
        await runtime.letters.claim(identity.scope, identity.epoch)
        await standing.load(runtime.orders)
        await settle(course, identity, checkpoint)
        if standing.of(course.names[0]).paused:
            self._begin_rows(None)  # they are shown meanwhile
            return Ending.PAUSED
        deliveries = {each.name: self._delivery(each) for each in course.routed}
        with self.interrupt.calling(self._end_waits):
            with self.interrupt.interrupts() as asking:
                self.begun = await beginnings(
                    course, identity, course.status.checkpoint, deliveries
                )
            if asking.cancelled_caught or self.interrupt.is_set:
                return Ending.STOPPED
            return await self._begin()

    def _end_waits(self) -> None:
        """Ends the waits of its handlers, not of those that have left."""
        left = {each.name for each in self._all if each.left}
        for name, interrupt in self._waits.items():
            if name not in left:
                interrupt.set()

    async def _begin(self) -> Ending:
        """Finds where the stream begins: where the handler does that stands last."""
        course, claim, last = self.course, self.course.scope.claim, self._last
        stored = claim.of(last.name)
        self.leads = last.name if last.position.own is not None else ""
        start = course.history.start(last.position, stored)
        self.start = start = start or last.position.start
        scope = course.scope.plan.scope
        gap = course.history.gap(start, scope.name, last.position, stored)
        log = structlog.get_logger().bind(scope=scope.name)
        log.info("stream.starting", at=str(start), follows=str(scope), handlers=course.names)
        if gap is not None:
            self.begun = [
                replace(each, position=after_gap(start, each.position)) for each in self.begun
            ]
        if not course.alone:
            return await self._follow(gap)
        streams, most = course.scope.streams, course.scope.plan.catch_up_streams
        if not streams.value:
            why = f"waits for one of the {most} streams of the scope for handlers that are behind"
            course.status.enter(WatcherState.WAITING, why)
        with self.interrupt.interrupts() as waiting:
            await streams.acquire()
        if waiting.cancelled_caught:
            return Ending.STOPPED
        try:
            return await self._follow(gap)
        finally:
            streams.release()

    @property
    def _last(self) -> HandlerStart:
        """The handler that stands last."""
        last = self.begun[0]
        for each in self.begun:
            last = each if each.position.position.is_before(last.position.position) else last
        return last

    def _begin_rows(self, gap: Gap | None) -> None:
        """Begins with the snapshot in the checkpoint, and with what is ordered since."""
        course, standing = self.course, self.course.scope.standing
        known = least_snapshot(self.begun)
        if not self.begun and (stored := course.scope.claim.of(course.names[0])) is not None:
            known = stored.position.snapshot
        fresh = course.scope.claim.of(course.names[0]) is None
        rows = {each.name: each.rows for each in self.begun if each.rows is not None}
        asked = standing.of(course.names[0]).asked
        snapshot = course.rows.begin(
            known, fresh=fresh, gap=gap is not None, rows=rows, asked=asked
        )
        standing.tell(course.rows, course.names)
        self.begun = [
            replace(
                each,
                position=replace(
                    each.position, position=replace(each.position.position, snapshot=snapshot)
                ),
            )
            for each in self.begun
        ]

    def _delivery(self, routed: Routed) -> Delivery:
        scope, identity = self.course.scope, self._identity
        handler = routed.handler
        held = scope.runtime.letters.held(identity.scope, handler.name)
        identity = replace(identity, dead_letter_keys=held)
        retry = Retry(
            identity,
            handler.name,
            scope.runtime.letters,
            scope.breakers[handler.name],
            self.course.status.errors,
            self._waits.setdefault(handler.name, Interrupt()),
            scope.claim.lease,
        )
        share, lease = scope.runtime.share, scope.claim.lease
        kind = Delivery if handler.commit is None else CommitDelivery
        return kind(handler, retry, identity, share, lease, scope.turns.get(handler.name))

    async def _follow(self, gap: Gap | None) -> Ending:
        """Builds the parts, opens the stream, and reads. ``gap``: the changes skipped, if any."""
        course, scope, interrupt = self.course, self.course.scope, self.interrupt
        plan, runtime, status = scope.plan, scope.runtime, course.status
        self._begin_rows(gap)
        limit = ReadLimit(runtime.budget.share(), status, interrupt, self._make_room)
        start = min((e.position.time for e in self.begun if e.position.time), default=None)
        self._watermarks = status.watermark = Watermarks(start, limit.moved)
        saved = status.checkpoint
        status.committed_time = saved.position.cluster_time if saved else None
        for each in self.begun:
            self._add(self._handler_run(each))
        self._checkpointer = Checkpointer(
            plan, runtime, self._identity, scope.claim, self._all, self._watermarks, status
        )
        save_first = any(each.position.save_first for each in self.begun)
        save_first = save_first or any(each.stored is None for each in self.handlers)
        admission = Admission(
            plan,
            runtime,
            course.rows,
            interrupt,
            limit,
            self._watermarks,
            self.handlers,
            self._checkpointer,
            save_first=save_first,
        )
        reader = Reader(plan, runtime, status, course.rows, interrupt, admission, self._is_there)
        stream = reader.stream(self.start)
        try:
            with interrupt.interrupts() as opening:
                await stream.open()
            if opening.cancelled_caught:
                return Ending.STOPPED
            status.enter(WatcherState.CATCHING_UP)
            status.find = partial(in_flight, self.handlers)
            if gap is not None:
                gap = replace(gap, until=status.stream.server_time)
                told = [each.delivery for each in self.handlers if each.delivery is not None]
                await record(gap, runtime.store, told, scope.claim.lease)
            with interrupt.calling(self._halt_lanes):
                return await self._handle(reader, stream)
        finally:
            status.find = None
            self.events, self.replies = reader.events, reader.replies
            if self.events:
                course.history.progressed()
            with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                await stream.aclose()

    def _handler_run(self, begun: HandlerStart) -> HandlerRun:
        """A handler's part, as it begins in a stream that begins at the run's start."""
        at, start = begun.position, self.start
        noted = self.course.scope.claim.of(begun.name) or Subscription(at.position)
        exactly = at.start == start and not at.has.handled
        known = at.has == NOTHING or start == NOW or exactly or at.has.token == start.start_after
        before = None if known else HandledBefore(at.has, waits=at.own is not None)
        watermark = Watermark(
            at.position,
            self._watermarks.moved,
            handles=begun.routed is not None,
            floor=None if known else at.has,
        )
        stored = None if at.save_first else noted.position
        run = HandlerRun(begun.name, watermark, noted, stored, begun.delivery)
        if begun.routed is not None and begun.delivery is not None:
            most, wants = self.course.scope.plan.lanes, begun.routed.wants
            run.lane = lane_of(begun.delivery, wants, watermark, before, most)
        run.begin()
        return run

    def _add(self, handler: HandlerRun) -> None:
        self.handlers.append(handler)
        self._all.append(handler)
        self._watermarks.each[handler.name] = handler.watermark

    async def _handle(self, reader: Reader, stream: Stream) -> Ending:
        """Runs the tasks. They raise only cancellations: any other failure is noted, and halts all.

        After an invalidate all lanes finish what was read. Otherwise the interrupt halts them.
        """
        until_drained = Interrupt()
        ending = Ending.STOPPED
        course, shared = self.course, self.course.parts is not None
        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(self._save_regularly, until_drained, name="checkpointer")
                for each in self.handlers:
                    self._start(each)
                    if each.delivery is not None and each.delivery.handler.ready is not None:
                        beside.start_soon(
                            self._opened, each.delivery, until_drained, name="opening"
                        )
                reading_rows = anyio.CancelScope()
                rows = RowReader(
                    course.rows,
                    reader.admission.order,
                    self.handlers,
                    reader.admission.limit,
                    course.status,
                    reader.admit_rows,
                    self._checkpointer.save,
                )
                beside.start_soon(self._read_rows, rows, reading_rows, name="rows")
                if shared:
                    self.meeting.open(self._read_to, self._attach, self._withdraw)
                try:
                    ending = await required(reader.read, "the reader", stream)
                except TailraceError as error:
                    self._fail(error)
                finally:
                    if shared:
                        self.meeting.close()
                reading_rows.cancel()
                course.status.enter(WatcherState.DRAINING)
                await self._drain(together=ending is Ending.INVALIDATED)
                until_drained.set()
        finally:
            # A cancelled run saves what is handled; the lanes are cancelled with it.
            await self._save_last()
            for each in self._all:
                if not each.left:
                    each.watermark.abandon()
        if self._failure is not None:
            raise self._failure
        return ending if self._watermarks.empty else Ending.STOPPED

    async def _drain(self, *, together: bool) -> None:
        """Waits until each handler has finished, or has left. ``together``: all of what was read
        will be finished, and a handler that is slow with it does not keep the others."""
        for each in list(self.handlers):
            if each.joining:
                self._remove(each)
            elif each.lane is not None:
                each.lane.close()
        while left := [each for each in self.handlers if not each.over.is_set()]:
            slow = together and self.course.parts is not None and len(left) < len(self.handlers)
            with anyio.move_on_after(PATIENCE_SECONDS if slow else float("inf")) as patience:
                await left[0].over.wait()
            if patience.cancelled_caught:
                self._detach(left[0], "it is slower than the others before an invalidate")

    def _fail(self, error: Exception) -> None:
        """Notes the first failure and ends this run; running calls finish."""
        self._failure = self._failure or error
        self.interrupt.set()

    def _halt_lanes(self) -> None:
        for each in self.handlers:
            if each.lane is not None and not each.joining:
                each.lane.halt()

    async def _opened(self, delivery: Delivery, until: Interrupt) -> None:
        """Shows that a destination is down since the start, even if there is no event for it."""
        with suppress(DeliveryInterrupted), until.interrupts():
            await delivery.position.opened()

    # --- handlers that leave, and that join ------------------------------------------------------

    def _start(self, handler: HandlerRun) -> None:
        if handler.lane is None:
            handler.over.set()
        else:
            tasks = self.course.scope.tasks
            tasks.start_soon(self._run_lane, handler, name=f"lanes of {handler.name}")

    async def _run_lane(self, handler: HandlerRun) -> None:
        """Runs a handler's lane: it may end after the run, if the handler has left it."""
        assert handler.lane is not None  # noqa: S101 - for the type checker
        failure: Exception | None = None
        try:
            await handler.begun.wait()
            if handler.joining:
                return  # it left before it had joined
            with self.course.scope.stop.calling(self._waits[handler.name].set):
                await required(handler.lane.run, "the task of a handler's lane")
        except Exception as error:  # noqa: BLE001 - whatever the error is, running calls finish
            failure = error
        finally:
            handler.over.set()
        if failure is not None and not handler.left:
            if not self._can_leave or isinstance(failure, _OF_THE_SCOPE) or self.interrupt.is_set:
                self._fail(failure)
                return
            self._leave(handler)
        if handler.left:
            await self._checkpointer.save_last([handler])
            self._all.remove(handler)
            handler.watermark.abandon()
            handler.failure = failure
            handler.ended.set()

    @property
    def _can_leave(self) -> bool:
        """Whether a handler can leave, and others stay."""
        return self.course.parts is not None and len(self.handlers) > 1

    def let_go(self, names: Collection[str]) -> bool:
        """Ends some handlers' calls and waits, so that they leave; returns whether they do."""
        some = [each for each in self.handlers if each.name in names and not each.joining]
        if len(some) < len(names) or len(some) >= len(self.handlers) or not self._can_leave:
            return False
        for each in some:
            self._waits[each.name].set()
            self._leave(each)
        return True

    def _make_room(self) -> bool:
        """Lets the handler leave that holds most of the memory, if the others stand further;
        returns whether one has left."""
        if not self._can_leave:
            return False
        by_size = sorted(self.handlers, key=lambda each: each.watermark.size)
        last, next_one = by_size[-1], by_size[-2]
        if last.watermark.size < 2 * max(next_one.watermark.size, 1):
            return False
        self._detach(last, "the others would have to wait for it")
        return True

    def _detach(self, handler: HandlerRun, why: str) -> None:
        self.meeting.left(handler.name)
        if handler.joining:
            self._remove(handler)
            return
        structlog.get_logger().warning(
            "subscription.detached",
            scope=self._identity.scope,
            handler=handler.name,
            reason=why,
            at=str(handler.watermark.position.start_point),
        )
        self._leave(handler)

    def _leave(self, handler: HandlerRun) -> None:
        self._remove(handler)
        self.course.part(handler.name, None, handler)

    def _remove(self, handler: HandlerRun) -> None:
        """Feeds a handler no more: what it has not begun leaves memory."""
        self.handlers.remove(handler)
        del self._watermarks.each[handler.name]
        handler.leave()
        if handler.joining:
            self._all.remove(handler)
            handler.watermark.abandon()

    def _read_to(self) -> ResumeToken | None:
        """Where a handler may join; ``None`` while none can."""
        ready = not (self.interrupt.is_set or self.course.rows.active)
        return self._watermarks.read_token if ready else None

    def _attach(self, routed: Routed, former: HandlerRun, token: ResumeToken) -> HandlerRun:
        """Feeds a handler with everything after a token; it begins when its own run has ended."""
        assert former.delivery is not None  # noqa: S101 - for the type checker
        delivery = self._delivery(routed)
        has = Progress(token, token.cluster_time)
        watermark = Watermark(former.watermark.position, self._watermarks.moved, floor=has)
        handler = HandlerRun(routed.name, watermark, former.subscription, None, delivery)
        before = HandledBefore(has, waits=True)
        handler.lane = lane_of(
            delivery, routed.wants, watermark, before, self.course.scope.plan.lanes
        )
        self._add(handler)
        self._start(handler)
        return handler

    def _withdraw(self, handler: HandlerRun) -> None:
        """A handler that was to join does not come."""
        if handler in self.handlers and handler.joining:
            self._remove(handler)

    def _is_there(self) -> bool:
        """Whether the handler has come as far as the shared stream, and is attached to it now."""
        course = self.course
        if not course.alone or course.rows.active:
            return False
        token, routed, handler = self._watermarks.read_token, course.routed[0], self.handlers[0]
        if not self.meeting.meets(routed.name, token):
            return False
        assert token is not None and self.meeting.attach is not None  # noqa: S101, PT018
        self.joined = self.meeting.attach(routed, handler, token)
        return True

    # --- reading rows, and saving ----------------------------------------------------------------

    async def _read_rows(self, rows: RowReader, until: anyio.CancelScope) -> None:
        """Reads rows. A failure ends this run; the next run reads rows without a place again."""
        try:
            with until, self.interrupt.interrupts():
                await required(rows.run, "the reader of documents")
        except TailraceError as error:
            self._fail(error)

    async def _save_regularly(self, until: Interrupt) -> None:
        try:
            await required(self._checkpointer.run, "the checkpointer", until)
        except (CheckpointError, TaskCancelled) as error:
            self._fail(error)
        except anyio.get_cancelled_exc_class():
            self.interrupt.set()
            # Save now: a handler that ignores its cancellation keeps the run from its last save.
            await self._save_last()
            raise

    async def _save_last(self) -> None:
        error = await self._checkpointer.save_last(self.handlers)
        self._failure = self._failure or error

    @property
    def joins(self) -> bool:
        """Whether its handler goes on in the shared stream, as everything before is handled."""
        came = self.joined is not None and not self.joined.left
        return came and self._failure is None and self._watermarks.empty

    @property
    def can_start_elsewhere(self) -> bool:
        """Whether there is a start point that the server has not refused."""
        last = self._last
        stored = self.course.scope.claim.of(last.name)
        return self.course.history.start(last.position, stored) is not None
