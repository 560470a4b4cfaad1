"""One scope, followed for ever: runs that begin at the checkpoint, and what happens in between.

Before it stands the stream, which resumes by itself as the specification says; above it the
supervisor, which starts it and waits. A run ends by a stop, by an invalidate event, or by an
error; then it drains, saves, and a new one begins from what was saved, or a person is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import structlog
from bson.timestamp import Timestamp

from tailrace.engine.error_policy import Decision, Reason, decide
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.isolation import required
from tailrace.engine.handle.retry import Retry
from tailrace.engine.ports import Handler, Owner
from tailrace.engine.position.history_lost import MOST_SKIPS, LostHistory, is_gap
from tailrace.engine.position.start_position import StartPosition, beginning, start_point
from tailrace.engine.position.watermark import Position
from tailrace.engine.read.reader import Ending
from tailrace.engine.run import Run
from tailrace.engine.scope_plan import Runtime, ScopePlan
from tailrace.engine.status import WatcherState, WatcherStatus
from tailrace.errors import CheckpointFenced, ScopeHalted, StreamBeganInMidEvent, describe
from tailrace.model import Checkpoint, SinkPosition
from tailrace.model.gap import Gap
from tailrace.model.start import NOW
from tailrace.stream import Interrupt, fingerprint


class Watcher:
    """Follows one scope until it is stopped or halted; :attr:`status` says how it goes."""

    def __init__(
        self,
        plan: ScopePlan,
        runtime: Runtime,
        status: WatcherStatus | None = None,
    ) -> None:
        self.plan = plan
        names = [routed.handler.name for routed in plan.routed]
        recorders = {n: runtime.metrics.recorder(plan.scope.name, n) for n in names}
        self.status = status or WatcherStatus(plan.scope, recorders=recorders)
        self._runtime = runtime
        self._failures = 0
        self._fingerprint = fingerprint(plan.scope, plan.options)
        self._epoch = 0
        self._sequence = 0
        self._saw_nothing_else = False
        self._history = LostHistory()
        self._deliveries = [self._delivery(routed.handler) for routed in plan.routed]
        self._start = NOW
        self._begins = StartPosition(NOW)
        self._refusal = ""
        self._trouble = ""
        """Why the last run failed: the next one, while it starts, is an attempt after that."""
        self._opening = True
        self._read_on = False
        self.fenced = False
        """Whether it is halted because the store holds a newer position."""
        self.unsaved = ""
        """Why the store lacks the position of the last run that is over, if it does."""
        self._log = structlog.get_logger().bind(scope=plan.scope.name)
        self.status.clock = runtime.clock
        if plan.options.max_await_time_ms:
            self.status.await_seconds = plan.options.max_await_time_ms / 1000
        runtime.metrics.watch(plan.scope.name, self.status.gauges)

    @property
    def name(self) -> str:
        """The scope's name."""
        return self.plan.scope.name

    def anew(self) -> Watcher:
        """One that knows as much as after a restart of the process, for a scope that is halted.

        Only what is told of the scope goes on: its counts, its errors.
        """
        self._runtime.metrics.restarts.labels(self.name, "operator").inc()
        self.status.restarts += 1
        self._enter(WatcherState.STARTING, "restarted by an operator")
        self._log.info("scope.restarted", by="operator")
        return Watcher(self.plan, self._runtime, self.status)

    async def run(self, stop: Interrupt) -> None:
        """Runs, one after another. Returns only in state ``stopped`` or ``halted``."""
        fruitless_invalidates = False
        while not stop.is_set:
            before = self._order
            try:
                ending = await required(self._run, f"the watcher of scope {self.name!r}", stop)
            except Exception as error:  # noqa: BLE001 - a watcher never ends but by its states
                leader = self._begins.leader
                decision = decide(error, self.name, opening=self._opening, leader=leader)
                self.status.failed(decision.message)
                self._trouble = decision.message
                if self._goes_around(decision, error):
                    continue
                if decision.halt:
                    self._halt(decision)
                    return
                await self._back_off(decision.reason, decision.message, before, error, stop)
                continue
            self._trouble = ""
            if ending is Ending.INVALIDATED:
                if self.plan.stop_on_invalidate:
                    self._log.info("scope.ended", reason="invalidate")
                    break
                # Two runs in a row that saw nothing but an invalidate would spin.
                if not self._saw_nothing_else:
                    self._failures = 0
                elif fruitless_invalidates:
                    self._enter(WatcherState.BACKING_OFF, "invalidated again at once")
                    self._failures += 1
                    await stop.sleep(self.plan.backoff.delay(self._failures))
                fruitless_invalidates = self._saw_nothing_else
        self._enter(WatcherState.STOPPED)

    def _delivery(self, handler: Handler) -> Delivery:
        recorder = self._runtime.metrics.recorder(self.name, handler.name)
        retry = None
        if self._runtime.letters is not None:
            retry = Retry(
                self.name,
                handler.name,
                handler.failure,
                self._runtime.letters,
                recorder,
                self.status.failed,
            )
        return Delivery(handler.of_scope(self.name), recorder, retry)

    async def _run(self, stop: Interrupt) -> Ending:
        self._enter(WatcherState.STARTING, self._trouble)
        self._opening = True
        self._read_on = False
        checkpoint = await self._load()
        if self._runtime.letters is not None:
            await self._runtime.letters.refresh()
        owner = Owner(self.name, str(self._runtime.cluster), self._fingerprint, self._epoch)
        with stop.interrupts() as asking:
            positions = await self._positions(owner)
        if asking.cancelled_caught:
            return Ending.STOPPED
        begins = self._begins = self._beginning(checkpoint, positions)
        start = self._start = self._history.start(begins, checkpoint) or begins.start
        gap = self._gap(checkpoint) if is_gap(start, begins, checkpoint) else None
        self._log.info("stream.starting", at=str(start), follows=str(self.plan.scope))
        run = Run(
            self.plan,
            self._runtime,
            self.status,
            self._deliveries,
            owner,
            begins.run(start, checkpoint, gap=gap is not None),
            self._sequence,
            self._enter,
        )
        try:
            with stop.child() as interrupt:
                return await run.run(start, interrupt, gap)
        finally:
            self._opening = run.replies <= 1
            self._read_on = run.replies > 1 or run.events > 0
            self._saw_nothing_else = run.events <= 1
            self._sequence, self.unsaved = run.sequence, run.unsaved
            if run.events:
                self._history.progressed()

    async def _positions(self, owner: Owner) -> dict[str, SinkPosition | None]:
        """What the handlers that own their position say of it."""
        positions = {}
        for delivery in self._deliveries:
            delivery.belongs_to(owner)
            if delivery.handler.position is not None:
                positions[delivery.name] = await delivery.position()
        return positions

    def _beginning(
        self, checkpoint: Checkpoint | None, positions: Mapping[str, SinkPosition | None]
    ) -> StartPosition:
        others = [each.name for each in self._deliveries if each.name not in positions]
        wanted = start_point(
            self.name, checkpoint, self.plan.start, self._fingerprint, self._runtime.cluster
        )
        return beginning(self.name, wanted, checkpoint, self._fingerprint, positions, others)

    def _gap(self, checkpoint: Checkpoint | None) -> Gap:
        """What beginning now skips. Raises :class:`ScopeHalted` where that goes in rounds."""
        if not self._history.skipped():
            raise ScopeHalted(
                f"scope {self.name!r}: its history was lost {MOST_SKIPS} times without one change "
                f"in between: {self._refusal}. Look at the size of the server's oplog, then restart"
            )
        position = Position.behind(checkpoint, self.plan.start)
        token, since = position.high_water or position.event_token, position.cluster_time
        if self._begins.leads is not None:
            token, since = self._begins.leads.token, self._begins.leads.time
        return Gap(
            scope=self.name,
            token=token,
            since=since,
            until=None,
            reason=self._refusal,
            policy="skip",
            recorded_at=datetime.now(UTC),
        )

    def _goes_around(self, decision: Decision, error: Exception) -> bool:
        """Whether the next run can begin elsewhere, at once: each start point is tried once."""
        if isinstance(error, StreamBeganInMidEvent):
            time = error.cluster_time
            return isinstance(time, Timestamp) and self._history.rewind(time)
        if decision.reason != Reason.HISTORY_LOST:
            return False
        self._runtime.metrics.history_lost.labels(self.name).inc()
        if not self.plan.skip_lost_history:
            return False
        self._history.refused(self._start)
        self._refusal = describe(error)
        self._log.warning("resume_point.rejected", start=str(self._start), error=decision.message)
        return self._history.start(self._begins, self.status.checkpoint) is not None

    async def _load(self) -> Checkpoint | None:
        """The checkpoint; the first load of this process claims it by a new epoch."""
        found = await self._runtime.store.load(self.name)
        stored = found.order if found else (0, 0)
        if not self._epoch:
            found = await self._claim(found)
        elif stored > (self._epoch, self._sequence):
            # Not ours: a save of which we never heard again has a sequence that was counted.
            raise CheckpointFenced(
                f"scope {self.name!r}: the store holds epoch {stored[0]}, sequence {stored[1]}, "
                f"newer than this process's {self._epoch}, {self._sequence}: another process "
                "follows the scope now, or an operator has set or reset its position. Restart "
                "this scope to follow from there"
            )
        checkpoint = None if found is not None and found.is_reset else found
        self.status.checkpoint = checkpoint
        return checkpoint

    async def _claim(self, found: Checkpoint | None) -> Checkpoint:
        """Stores the position that was found, or that there is none, with the next epoch.

        Before anything is read: of two processes that start at once, one claims the epoch. The
        other is fenced, and has handled nothing.
        """
        epoch = found.epoch + 1 if found is not None else 1
        before = found or Checkpoint.nowhere(self.name)
        claimed = replace(before, epoch=epoch, sequence=0, saved_at=datetime.now(UTC))
        await self._runtime.store.save(claimed)
        self._epoch = epoch
        return claimed

    async def _back_off(
        self,
        reason: str,
        message: str,
        before: tuple[int, int] | None,
        error: Exception,
        stop: Interrupt,
    ) -> None:
        # The position behind an aggregate that found nothing is new each time, and no progress.
        if self._order != before and self._read_on:
            self._failures = 0
        self._failures += 1
        delay = self.plan.backoff.delay(self._failures)
        self.status.restarts += 1
        self._runtime.metrics.restarts.labels(self.name, reason).inc()
        self._log.warning(
            "watcher.restarting",
            reason=reason,
            error=message,
            delay_seconds=round(delay, 3),
            exc_info=error if reason == "internal" else None,
        )
        self._enter(WatcherState.BACKING_OFF, message)
        await stop.sleep(delay)

    def _halt(self, decision: Decision) -> None:
        self.fenced = decision.reason == Reason.FENCED
        self._enter(WatcherState.HALTED, decision.message)
        self._log.error("scope.halted", error=decision.message)

    def _enter(self, state: WatcherState, reason: str = "") -> None:
        if self.status.enter(state, reason):
            self._log.debug("watcher.entered", state=state.value)

    @property
    def _order(self) -> tuple[int, int] | None:
        return self.status.checkpoint.order if self.status.checkpoint else None
