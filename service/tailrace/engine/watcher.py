"""Follows one scope for ever, in one run after another.

A stop, an invalidate event or an error ends a run. Then the next run starts from what was saved,
unless the scope stops, or halts for manual intervention.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine.checkpointer import CheckpointClaim
from tailrace.engine.error_policy import Decision, Reason, decide
from tailrace.engine.halt_record import note_halt
from tailrace.engine.handle.frames import waits_for
from tailrace.engine.handle.isolation import required
from tailrace.engine.handle.retry import Breaker
from tailrace.engine.handle.side_calls import SideCalls
from tailrace.engine.held_lease import HeldLease
from tailrace.engine.plan.scope_plan import Runtime, ScopePlan
from tailrace.engine.ports import PerBatch
from tailrace.engine.position.history_lost import LostHistory
from tailrace.engine.read.reader import Ending
from tailrace.engine.refusal import blame
from tailrace.engine.run import Run
from tailrace.engine.standing_order import StandingOrder
from tailrace.engine.status.status import Status
from tailrace.engine.status.watcher_state import ENDED, WatcherState
from tailrace.errors import CommandFailed, SourceRestored, StreamBeganInMidEvent, describe
from tailrace.model.order import Order
from tailrace.model.start import NOW
from tailrace.stream import Interrupt

_RISK_SECONDS = 5.0
"""The time between two looks whether a paused scope loses changes."""


class Watcher:
    """Follows one scope until it is stopped or halted; :attr:`status` describes its state."""

    def __init__(self, plan: ScopePlan, runtime: Runtime, status: Status | None = None) -> None:
        self.plan = plan
        handlers = [routed.handler for routed in plan.routed]
        recorders = {
            each.name: runtime.metrics.recorder(plan.scope.name, each.name) for each in handlers
        }
        lease = partial(runtime.lease, plan.scope.name)
        self.status = status or Status(plan.scope, runtime.clock, recorders, lease=lease)
        self._runtime = runtime
        self._breakers = {
            each.name: Breaker(each.failure, recorders[each.name]) for each in handlers
        }
        self._claim = CheckpointClaim(plan.scope.name)
        self._history = LostHistory()
        self._standing = StandingOrder(plan.scope.name)
        self._turns = {
            # No lock, which belongs to a task: handlers may end the task that calls them.
            each.name: anyio.Semaphore(1, fast_acquire=True)
            for each in handlers
            if isinstance(each.calls, PerBatch) and each.calls.concurrency == 1
        }
        self.side_calls = SideCalls(plan.scope.name)
        self._running: Interrupt | None = None
        """Ends the run, drained; ``None`` while there is none."""
        self._failures = 0
        self._trouble = ""
        """Why the last run failed: shown while the next one starts."""
        self.fenced = False
        """Whether the watcher ended because the store holds a newer position or its lease ended."""
        self._log = structlog.get_logger().bind(scope=plan.scope.name)
        self.status.snapshot = plan.rows.observed
        self.status.waits_for = partial(waits_for, plan.scope.name)
        runtime.metrics.watch(plan.scope.name, self.status.gauges)

    @property
    def name(self) -> str:
        """The scope's name."""
        return self.plan.scope.name

    @property
    def claim(self) -> CheckpointClaim:
        """The claim on the scope's checkpoint, with its epoch (0 before the first run)."""
        return self._claim

    @property
    def runs(self) -> bool:
        """Whether a run is reading, or draining."""
        return self._running is not None

    @property
    def begins_somewhere(self) -> bool:
        """Whether it is settled where the scope begins; a later "now" would skip changes."""
        status, lease = self.status, self.status.lease()
        if self.plan.start != NOW or status.checkpoint is not None or status.state in ENDED:
            return True
        return status.state is WatcherState.STANDBY and lease is not None and bool(lease.owner)

    def turn(self, handler: str) -> AbstractAsyncContextManager[None]:
        """For a call beside the runs: waits for the turn of a handler that gets one at a time."""
        return self.side_calls.call(self._turns.get(handler) or nullcontext())

    @property
    def obeyed(self) -> int:
        """The number of the last order whose position the checkpoint has taken."""
        return self._claim.obeyed

    @property
    def generations(self) -> dict[str, int | None]:
        """The number of the last operator's order, and that of the last one that has its effect.

        The latter is ``None`` where another process follows the scope.
        """
        state, generation = self.status.state, self._standing.number
        if state is WatcherState.STANDBY:
            return {"generation": generation, "observed_generation": None}
        paused = (state is WatcherState.PAUSED) is self._standing.pauses
        seeks = self._standing.seeks(self._claim.obeyed) is not None
        observed = generation if paused and not seeks else max(generation - 1, 0)
        return {"generation": generation, "observed_generation": observed}

    def anew(self, by: str) -> Watcher:
        """A new watcher for a halted scope. It keeps the status, with its counts and errors."""
        self._count_restart(by)
        self.status.enter(WatcherState.STARTING, f"restarted by {by}")
        self._log.info("scope.restarted", by=by)
        return Watcher(self.plan, self._runtime, self.status)

    def obey(self, order: Order) -> None:
        """Hears of an operator's order. It ends the run, drained, if it demands that."""
        newer = self._standing.hear(order)
        if self.status.state is not WatcherState.STANDBY:
            self._standing.tell(self.plan.rows)
        demands = self._standing.pauses or self._standing.seeks(self._claim.obeyed) is not None
        if newer and demands and self._running is not None:
            self._running.set()

    async def run(self, stop: Interrupt, lease: HeldLease | None = None) -> None:
        """Makes runs until the state is ``stopped`` or ``halted``.

        With a ``lease`` it also returns if :attr:`fenced`: another process owns the scope.
        """
        self.fenced = False
        if lease is not None:
            self._claim, self._history = CheckpointClaim(self.name, lease), LostHistory()
            self._failures, self._trouble = 0, ""
        while not stop.is_set:
            before, heard = self._order, self._standing.number
            with stop.child() as interrupt:
                self._running = interrupt
                run = Run(
                    self.plan,
                    self._runtime,
                    self.status,
                    self._claim,
                    self._history,
                    self._breakers,
                    self._standing,
                    self._turns,
                    interrupt,
                )
                if not (self._standing.pauses and self.status.state is WatcherState.PAUSED):
                    self.status.enter(WatcherState.STARTING, self._trouble)
                try:
                    ending = await required(run.run, f"the watcher of scope {self.name!r}")
                except Exception as error:  # noqa: BLE001 - only its state ends a watcher
                    if not await self._recover(error, run, before, heard, stop):
                        return
                    continue
                finally:
                    self._running = None
            self._trouble = ""
            if ending is Ending.PAUSED:
                await self._pause(stop)
            if ending is Ending.INVALIDATED:
                if self.plan.stop_on_invalidate:
                    self._log.info("scope.ended", reason="invalidate")
                    break
                if run.events > 1:
                    self._failures = 0
                else:  # a server that sends only invalidates must not cause a busy loop
                    self.status.enter(WatcherState.BACKING_OFF, "only an invalidate came")
                    await self._back_off(self._next_delay(), heard, stop)
        self.status.enter(WatcherState.STOPPED)

    async def _pause(self, stop: Interrupt) -> None:
        """Waits for an order that ends the pause, or changes where the scope continues."""
        order = self._standing.order
        assert order is not None  # noqa: S101 - it has paused the run
        if self.status.state is not WatcherState.PAUSED:
            self._log.info("scope.paused", by=order.by)
        since, name = order.at.isoformat(timespec="seconds"), self.name
        reason = f"paused by {order.by} at {since}: 'tailrace scopes resume {name}' continues"
        self.status.enter(WatcherState.PAUSED, reason)
        at_risk = False
        while self._standing.number == order.number and not stop.is_set:
            with anyio.move_on_after(_RISK_SECONDS):
                await self._standing.until_newer(order.number, stop)
            if (risk := self.status.history_risk) and not at_risk:
                self._log.warning("history.at_risk", reason=risk)
            at_risk = bool(risk)
        if not (stop.is_set or self._standing.pauses):
            assert self._standing.order is not None  # noqa: S101 - for the type checker
            self._log.info("scope.resumed", by=self._standing.order.by)

    async def _recover(
        self,
        error: Exception,
        run: Run,
        before: tuple[int, int] | None,
        heard: int,
        stop: Interrupt,
    ) -> bool:
        """Waits until the next run may start; returns False if there must be none."""
        opening, leader = run.replies <= 1, run.start_position.leader
        decision = decide(error, self.name, opening=opening, leader=leader)
        if decision.halt and opening and isinstance(error, CommandFailed):
            # Before the scope halts, or skips changes: does the server say so again?
            with stop.interrupts():
                at_fault = await blame(
                    self._runtime.driver, self.plan.scope, self.plan.options, run.start
                )
            if stop.is_set:
                return True
            decision = decide(error, self.name, leader=leader, blame=at_fault)
        self.fenced = decision.reason == Reason.FENCED
        if self.fenced and self._claim.lease is not None:
            self._log.info("scope.fenced", reason=decision.message)
            return False
        self.status.errors.note(decision.message)
        self._trouble = decision.message
        if self._restarts_elsewhere(decision, error, run):
            return True
        if decision.halt:
            if not self.fenced:
                noted = await note_halt(
                    self._runtime.store, self._claim, self.status.checkpoint, decision.message
                )
                self.status.checkpoint = noted or self.status.checkpoint
            self.status.enter(WatcherState.HALTED, decision.message)
            self._log.error("scope.halted", error=decision.message)
            return False
        # An aggregate that finds nothing gives a new position each time: that is no progress.
        if self._order != before and (run.replies > 1 or run.events):
            self._failures = 0
        delay = self._next_delay()
        self._count_restart(decision.reason)
        self._log.warning(
            "watcher.restarting",
            reason=decision.reason,
            error=decision.message,
            delay_seconds=round(delay, 3),
            exc_info=error if decision.reason == "internal" else None,
        )
        waits = decision.reason == Reason.DESTINATION
        state = WatcherState.WAITING if waits else WatcherState.BACKING_OFF
        self.status.enter(state, decision.message)
        await self._back_off(delay, heard, stop)
        return True

    async def _back_off(self, seconds: float, heard: int, stop: Interrupt) -> None:
        """Waits before the next run: less, if an order came after the one with this number."""
        with anyio.move_on_after(seconds):
            await self._standing.until_newer(heard, stop)

    def _next_delay(self) -> float:
        self._failures += 1
        return self.plan.backoff.delay(self._failures)

    def _restarts_elsewhere(self, decision: Decision, error: Exception, run: Run) -> bool:
        """Whether the next run can start elsewhere at once; each start point is tried once."""
        if isinstance(error, StreamBeganInMidEvent):
            time = error.cluster_time
            return isinstance(time, Timestamp) and self._history.rewind(time)
        if decision.reason != Reason.HISTORY_LOST:
            return False
        self._runtime.metrics.history_lost.labels(self.name).inc()
        if not self.plan.skip_lost_history:
            return False
        restored = isinstance(error, SourceRestored)
        self._history.refused(run.start, describe(error), restored=restored)
        self._log.warning("resume_point.rejected", start=str(run.start), error=decision.message)
        return self._history.start(run.start_position, self.status.checkpoint) is not None

    def _count_restart(self, reason: str) -> None:
        self._runtime.metrics.restarts.labels(self.name, reason).inc()
        self.status.restarts += 1

    @property
    def _order(self) -> tuple[int, int] | None:
        return self.status.checkpoint.order if self.status.checkpoint else None
