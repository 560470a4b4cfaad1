"""Follows the stream for the handlers of a course, in one run after another.

A stop, an invalidate event or an error ends a run. Then the next run starts from what was saved,
unless the scope stops, or the course halts for manual intervention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine.course import Course
from tailrace.engine.error_policy import Decision, Reason, decide
from tailrace.engine.halt_record import note_halt
from tailrace.engine.handle.destination_position import DestinationFenced
from tailrace.engine.handle.isolation import must_finish
from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.read.ending import Ending
from tailrace.engine.refusal import blame
from tailrace.engine.run import Run
from tailrace.engine.run_start import leave_last
from tailrace.engine.shared_stream import SharedStream
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.errors import CommandFailed, SourceRestored, StreamBeganInMidEvent, describe
from tailrace.model.subscription import Subscription
from tailrace.stream import Interrupt

_RISK_SECONDS = 5.0
"""The time between two looks whether a paused scope loses changes."""


@dataclass(eq=False, slots=True)
class Follow:
    """Follows one course. ``running`` ends its run, drained; ``None`` while there is none.

    ``fenced``: it ended because the store holds a newer position, or the lease has ended.
    ``arrived``: because a replay has come to its end.
    """

    course: Course
    shared_stream: SharedStream
    running: Interrupt | None = None
    fenced: bool = False
    arrived: bool = False
    now: Run | None = None
    """The run that is under way."""

    async def run(self, stop: Interrupt) -> HandlerRun | None:
        """Makes runs until the state is ``stopped`` or ``halted``, or another process owns the
        scope (``fenced``); returns the handler's part in the shared stream if it has come there."""
        course, desired = self.course, self.course.scope.desired
        while not stop.is_set:
            before, version_before = self._positions, desired.version
            with stop.child() as interrupt:
                self.running = interrupt
                run = self.now = Run(course, self.shared_stream, interrupt)
                if not (self._pauses and course.status.state is WatcherState.PAUSED):
                    course.status.enter(WatcherState.STARTING, course.trouble)
                try:
                    ending = await must_finish(run.run, f"the watcher of scope {self._scope!r}")
                except Exception as error:  # noqa: BLE001 - only its state ends a course
                    if not await self._recover(error, run, before, version_before, stop):
                        return None
                    continue
                finally:
                    self.running = self.now = None
                    if run.joined is not None and not run.joins:
                        self.shared_stream.withdraw(run.joined)
            course.trouble = ""
            if run.joined is not None and run.joins:
                run.joined.join(run.handlers.fed[0])
                return run.joined
            if ending is Ending.ARRIVED and course.replay is not None:
                self.arrived = True
                break
            if ending is Ending.PAUSED:
                await self._pause(stop)
            if ending is Ending.INVALIDATED:
                if course.scope.plan.stop_on_invalidate:
                    self._log.info("scope.ended", reason="invalidate")
                    break
                if run.events > 1:
                    course.failures = 0
                else:  # a server that sends only invalidates must not cause a busy loop
                    course.status.enter(WatcherState.BACKING_OFF, "only an invalidate came")
                    await self._back_off(self._next_delay(), version_before, stop)
        course.status.enter(WatcherState.STOPPED)
        return None

    @property
    def _scope(self) -> str:
        return self.course.scope.plan.scope.name

    @property
    def _log(self) -> Any:
        return structlog.get_logger().bind(scope=self._scope)

    @property
    def _pauses(self) -> bool:
        return self.course.scope.desired.of(self.course.names[0]).paused

    @property
    def _positions(self) -> list[Subscription | None]:
        return [self.course.scope.claim.of(name) for name in self.course.names]

    async def _pause(self, stop: Interrupt) -> None:
        """Waits for a desired state that ends the pause, or changes where the course continues."""
        desired, status = self.course.scope.desired, self.course.status
        version, by = desired.version, desired.by
        if status.state is not WatcherState.PAUSED:
            self._log.info("scope.paused", by=by, handlers=self.course.names)
        status.enter(WatcherState.PAUSED, desired.why_paused(self.course.names[0]))
        at_risk = False
        while desired.version == version and not stop.is_set:
            with anyio.move_on_after(_RISK_SECONDS):
                await desired.until_newer(version, stop)
            if (risk := status.history_risk) and not at_risk:
                self._log.warning("history.at_risk", reason=risk)
            at_risk = bool(risk)
        if not (stop.is_set or self._pauses):
            self._log.info("scope.resumed", by=desired.by, handlers=self.course.names)

    async def begin_after(self, error: Exception, stop: Interrupt) -> bool:
        """Begins a course with the error that made its handler leave the others; returns False if
        it must not run."""
        decision = decide(error, self.course.as_argument, opening=False)
        self._note(decision)
        if decision.halt:
            await self._halt(decision)
            return False
        await self.wait_after(error, decision, self.course.scope.desired.version, stop)
        return True

    def _note(self, decision: Decision) -> None:
        self.course.status.errors.note(decision.message)
        self.course.trouble = decision.message

    async def _halt(self, decision: Decision) -> None:
        course, scope = self.course, self.course.scope
        if not self.fenced:
            store, message = scope.runtime.store, decision.message
            noted = await note_halt(store, scope.claim, course.names, message)
            if noted is not None:
                course.status.checkpoint, course.status.unsaved = noted, ""
        course.status.enter(WatcherState.HALTED, decision.message)
        self._log.error("scope.halted", error=decision.message, handlers=course.names)

    async def _recover(
        self,
        error: Exception,
        run: Run,
        before: list[Subscription | None],
        version_before: int,
        stop: Interrupt,
    ) -> bool:
        """Waits until the next run may start; returns False if there must be none."""
        course = self.course
        plan, runtime, claim = course.scope.plan, course.scope.runtime, course.scope.claim
        opening = run.replies <= 1
        decision = decide(error, course.as_argument, opening=opening, handler=run.leads)
        if decision.halt and opening and isinstance(error, CommandFailed):
            # Before the scope halts, or skips changes: does the server say so again?
            with stop.interrupts():
                at_fault = await blame(runtime.driver, plan.scope, plan.options, run.start)
            if stop.is_set:
                return True
            decision = decide(error, course.as_argument, handler=run.leads, blame=at_fault)
        alone = len(course.scope.plan.routed) < 2
        destination = isinstance(error, DestinationFenced) and not alone
        self.fenced = decision.reason == Reason.FENCED and not destination
        if self.fenced and claim.lease is not None:
            self._log.info("scope.fenced", reason=decision.message)
            return False
        self._note(decision)
        if self._restarts_elsewhere(decision, error, run):
            return True
        if decision.halt:
            await self._halt(decision)
            return False
        # An aggregate that finds nothing gives a new position each time: that is no progress.
        if self._positions != before and (run.replies > 1 or run.events):
            course.failures = 0
        await self.wait_after(error, decision, version_before, stop)
        return True

    async def wait_after(
        self, error: Exception, decision: Decision, version_before: int, stop: Interrupt
    ) -> None:
        """Backs off before the next run."""
        delay = self._next_delay()
        self.course.scope.runtime.metrics.restarts.labels(self._scope, decision.reason).inc()
        self._log.warning(
            "watcher.restarting",
            handlers=self.course.names,
            reason=decision.reason,
            error=decision.message,
            delay_seconds=round(delay, 3),
            exc_info=error if decision.reason == "internal" else None,
        )
        self.course.status.counts.restarts += 1
        waits = decision.reason == Reason.DESTINATION
        state = WatcherState.WAITING if waits else WatcherState.BACKING_OFF
        self.course.status.enter(state, decision.message)
        await self._back_off(delay, version_before, stop)

    async def _back_off(self, seconds: float, version_before: int, stop: Interrupt) -> None:
        """Waits before the next run: less, if something else is wanted than at this version."""
        with anyio.move_on_after(seconds):
            await self.course.scope.desired.until_newer(version_before, stop)

    def _next_delay(self) -> float:
        self.course.failures += 1
        return self.course.scope.plan.backoff.delay(self.course.failures)

    def _restarts_elsewhere(self, decision: Decision, error: Exception, run: Run) -> bool:
        """Whether the next run can start elsewhere at once; each start point is tried once."""
        course = self.course
        if isinstance(error, StreamBeganInMidEvent):
            time, begun = error.cluster_time, run.replies <= 1  # not past what is in flight
            return begun and isinstance(time, Timestamp) and course.history.rewind(time)
        restored = isinstance(error, SourceRestored)
        if decision.reason != Reason.HISTORY_LOST:
            return False
        if run.replies <= 1 and not restored and leave_last(course, run.begun):
            return True
        course.scope.runtime.metrics.history_lost.labels(self._scope).inc()
        if not course.scope.plan.skip_lost_history:
            return False
        course.history.refused(run.start, describe(error), restored=restored)
        self._log.warning("resume_point.rejected", start=str(run.start), error=decision.message)
        return run.can_start_elsewhere
