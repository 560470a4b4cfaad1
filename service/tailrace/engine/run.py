"""One run of a scope: from its start position until a stop, an invalidate, or an error.

The task groups, read inside out, are the shutdown order: the reader, lanes, save, stream.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import structlog

from tailrace.engine.checkpointer import CheckpointClaim, Checkpointer
from tailrace.engine.final_position import final_position, reached_position
from tailrace.engine.first_position import begin_now
from tailrace.engine.handle.commit_delivery import CommitDelivery
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.destination_position import load_positions
from tailrace.engine.handle.in_flight import in_flight
from tailrace.engine.handle.isolation import required
from tailrace.engine.handle.lane import Lane
from tailrace.engine.handle.lane_kinds import lane_of
from tailrace.engine.handle.retry import Breaker, Retry
from tailrace.engine.handle.skipped_history import record
from tailrace.engine.plan.scope_plan import Runtime, ScopePlan
from tailrace.engine.ports import Handler, RunIdentity
from tailrace.engine.position.history_lost import LostHistory
from tailrace.engine.position.start_position import RunStart, StartPosition, start_position
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.read.admission import Admission
from tailrace.engine.read.read_limit import ReadLimit
from tailrace.engine.read.reader import CLOSING_SECONDS, Ending, Reader, Stream
from tailrace.engine.read.row_reader import RowReader
from tailrace.engine.seek import seek
from tailrace.engine.standing_order import StandingOrder
from tailrace.engine.status.status import Status
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.errors import CheckpointError, DeliveryInterrupted, TailraceError, TaskCancelled
from tailrace.model import Checkpoint, SnapshotProgress, StartPoint
from tailrace.model.gap import Gap
from tailrace.model.sink_position import NO_TOKEN
from tailrace.model.snapshot import StoredRows
from tailrace.model.start import NOW
from tailrace.stream import Interrupt, fingerprint


@dataclass(slots=True)
class Run:
    """Reads, delivers and saves until ``interrupt`` is set, by a stop or by a failed task."""

    plan: ScopePlan
    runtime: Runtime
    status: Status
    claim: CheckpointClaim
    history: LostHistory
    breakers: Mapping[str, Breaker]
    standing: StandingOrder
    turns: Mapping[str, anyio.Semaphore]
    """By handler that gets one call at a time: held during a call."""
    interrupt: Interrupt
    start: StartPoint = NOW
    start_position: StartPosition = field(default_factory=lambda: StartPosition(NOW))
    events: int = 0
    replies: int = 0
    """Replies of its stream, including empty ones; the first is the reply to the aggregate."""
    _deliveries: list[Delivery] = field(init=False)
    _watermark: Watermark = field(init=False)
    _checkpointer: Checkpointer = field(init=False)
    _lanes: list[Lane] = field(init=False)
    _rows: Mapping[str, StoredRows] = field(default_factory=dict)
    """By handler that owns its position: which rows of a snapshot its destination has."""
    _failure: Exception | None = None

    async def run(self) -> Ending:
        """Whatever ends the run, running calls finish and none begins; then it saves."""
        checkpoint = self.status.checkpoint = await self.claim.load(self.runtime.store)
        identity = RunIdentity(
            self.plan.scope.name,
            str(self.runtime.cluster),
            fingerprint(self.plan.scope, self.plan.options),
            self.claim.epoch,
        )
        await self.runtime.letters.claim(identity.scope, identity.epoch)
        await self.standing.load(self.runtime.orders)
        if checkpoint is None:
            asked = self.standing.asked
            checkpoint = await begin_now(self.plan, self.claim, identity, self.runtime, asked)
            self.status.checkpoint = checkpoint
        if (order := self.standing.seeks(self.claim.obeyed)) is not None:
            checkpoint = await seek(order, checkpoint, self.claim, identity, self.runtime)
            self.status.stored(checkpoint)
            self.history.progressed()
        if self.standing.pauses:
            self._begin_rows(checkpoint, fresh=False, gap=False)  # they are shown meanwhile
            return Ending.PAUSED
        self._deliveries = [self._delivery(each.handler, identity) for each in self.plan.routed]
        with self.interrupt.interrupts() as asking:
            self.start_position = await self._start_position(checkpoint, identity)
        if asking.cancelled_caught or self.interrupt.is_set:
            return Ending.STOPPED
        start = self.history.start(self.start_position, checkpoint)
        self.start = start = start or self.start_position.start
        gap = self.history.gap(start, self.plan, self.start_position, checkpoint)
        log = structlog.get_logger().bind(scope=identity.scope)
        log.info("stream.starting", at=str(start), follows=str(self.plan.scope))
        begin = self.start_position.run(start, checkpoint, gap=gap is not None)
        begin = self._with_rows(begin, checkpoint, gap=gap is not None)
        return await self._follow(begin, identity, gap)

    def _with_rows(self, begin: RunStart, checkpoint: Checkpoint | None, *, gap: bool) -> RunStart:
        """Adds the snapshot's progress to the start of the run."""
        known = checkpoint.position.snapshot if checkpoint is not None else None
        snapshot = self._begin_rows(checkpoint, fresh=checkpoint is None, gap=gap)
        return replace(
            begin,
            position=replace(begin.position, snapshot=snapshot),
            stored=begin.stored and replace(begin.stored, snapshot=known),
            save_first=begin.save_first or snapshot != known,
        )

    def _begin_rows(
        self, checkpoint: Checkpoint | None, *, fresh: bool, gap: bool
    ) -> SnapshotProgress | None:
        """Begins with the snapshot in the checkpoint, and with what is ordered since."""
        known = checkpoint.position.snapshot if checkpoint is not None else None
        rows, asked = self.plan.rows, self.standing.asked
        snapshot = rows.begin(known, fresh=fresh, gap=gap, rows=self._rows, asked=asked)
        self.standing.tell(rows)
        return snapshot

    def _delivery(self, handler: Handler, identity: RunIdentity) -> Delivery:
        held = self.runtime.letters.held(identity.scope, handler.name)
        identity = replace(identity, dead_letter_keys=held)
        retry = Retry(
            identity,
            handler.name,
            self.runtime.letters,
            self.breakers[handler.name],
            self.status.errors,
            self.interrupt,
            self.claim.lease,
        )
        share, lease = self.runtime.share, self.claim.lease
        kind = Delivery if handler.commit is None else CommitDelivery
        return kind(handler, retry, identity, share, lease, self.turns.get(handler.name))

    async def _start_position(
        self, checkpoint: Checkpoint | None, identity: RunIdentity
    ) -> StartPosition:
        positions, down = await load_positions(
            [each.position for each in self._deliveries], checkpoint
        )
        self._rows = {n: one.rows for n, one in positions.items() if one and one.rows is not None}
        positions = {
            n: one if one and one.token != NO_TOKEN else None for n, one in positions.items()
        }
        others = [each.name for each in self._deliveries if each.name not in (*positions, *down)]
        return start_position(identity, self.plan.start, checkpoint, positions, others, down)

    async def _follow(self, begin: RunStart, identity: RunIdentity, gap: Gap | None) -> Ending:
        """Builds the parts, opens the stream, and reads. ``gap``: the changes skipped, if any."""
        plan, runtime, status, interrupt = self.plan, self.runtime, self.status, self.interrupt
        limit = ReadLimit(runtime.budget.share(), status, interrupt)
        self._watermark = watermark = Watermark(begin.position, limit.moved)
        status.watermark = watermark
        saved = status.checkpoint
        status.committed_time = saved.position.cluster_time if saved else None
        self._checkpointer = Checkpointer(
            plan,
            runtime,
            identity,
            self.claim,
            watermark,
            status,
            begin.stored,
            lambda: reached_position(watermark, self._lanes),
        )
        self._lanes = [
            lane_of(delivery, routed.wants, watermark, begin, plan.lanes)
            for delivery, routed in zip(self._deliveries, plan.routed, strict=True)
        ]
        admission = Admission(
            plan,
            runtime,
            interrupt,
            limit,
            watermark,
            self._lanes,
            self._checkpointer,
            save_first=begin.save_first,
        )
        reader = Reader(plan, runtime, status, interrupt, admission)
        stream = reader.stream(self.start)
        try:
            with interrupt.interrupts() as opening:
                await stream.open()
            if opening.cancelled_caught:
                return Ending.STOPPED
            status.enter(WatcherState.CATCHING_UP)
            status.find = partial(in_flight, watermark, self._lanes)
            if gap is not None:
                gap = replace(gap, until=status.stream.server_time)
                await record(gap, runtime.store, self._deliveries, self.claim.lease)
            with interrupt.calling(self._halt_lanes):
                return await self._handle(reader, stream)
        finally:
            status.find = None
            self.events, self.replies = reader.events, reader.replies
            if self.events:
                self.history.progressed()
            with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                await stream.aclose()

    async def _handle(self, reader: Reader, stream: Stream) -> Ending:
        """Runs the tasks. They raise only cancellations: any other failure is noted, and halts all.

        After an invalidate all lanes finish what was read. Otherwise the interrupt halts them.
        """
        until_drained = Interrupt()
        ending = Ending.STOPPED
        try:
            async with anyio.create_task_group() as saving:
                saving.start_soon(self._save_regularly, until_drained, name="checkpointer")
                for each in self._deliveries:
                    if each.handler.ready is not None:
                        saving.start_soon(self._opened, each, until_drained, name="opening")
                async with anyio.create_task_group() as handling:
                    for lane in self._lanes:
                        handling.start_soon(self._run_lane, lane, name="lanes")
                    reading_rows = anyio.CancelScope()
                    rows = RowReader(
                        self.plan.rows,
                        reader.admission.order,
                        self._lanes,
                        reader.admission.limit,
                        self.status,
                        reader.admit_rows,
                        self._checkpointer.save,
                    )
                    handling.start_soon(self._read_rows, rows, reading_rows, name="rows")
                    try:
                        ending = await required(reader.read, "the reader", stream)
                    except TailraceError as error:
                        self._fail(error)
                    reading_rows.cancel()
                    self.status.enter(WatcherState.DRAINING)
                    for lane in self._lanes:
                        lane.close()
                until_drained.set()
        finally:
            self._watermark.abandon()
            await self._save_last()
        if self._failure is not None:
            raise self._failure
        return ending if self._watermark.empty else Ending.STOPPED

    def _fail(self, error: Exception) -> None:
        """Notes the first failure and ends this run; running calls finish."""
        self._failure = self._failure or error
        self.interrupt.set()

    def _halt_lanes(self) -> None:
        for lane in self._lanes:
            lane.halt()

    async def _opened(self, delivery: Delivery, until: Interrupt) -> None:
        """Shows that a destination is down since the start, even if there is no event for it."""
        with suppress(DeliveryInterrupted), until.interrupts():
            await delivery.position.opened()

    async def _run_lane(self, lane: Lane) -> None:
        try:
            await required(lane.run, "the task of a handler's lane")
        except Exception as error:  # noqa: BLE001 - whatever the error is, running calls finish
            self._fail(error)

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
        error = await self._checkpointer.save_last(final_position(self._watermark, self._lanes))
        self._failure = self._failure or error
