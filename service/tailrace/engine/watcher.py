"""Follows one scope for ever: its handlers together on the shared stream, or on their own.

A handler that falls behind, fails, is paused alone or begins by itself leaves the shared course for
one of its own, and comes back when it has caught up.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import anyio
import structlog

from tailrace.engine.checkpoint_claim import CheckpointClaim
from tailrace.engine.course import Course, FollowedScope, Former
from tailrace.engine.current_desired_state import CurrentDesiredState
from tailrace.engine.follow import Follow
from tailrace.engine.handle.frames import waits_for
from tailrace.engine.handle.retry import Breaker
from tailrace.engine.handle.side_calls import SideCalls
from tailrace.engine.held_lease import HeldLease
from tailrace.engine.plan.router import Routed
from tailrace.engine.plan.row_source import RowSource
from tailrace.engine.plan.scope_plan import Runtime, ScopePlan
from tailrace.engine.ports import PerBatch
from tailrace.engine.replay import Replays
from tailrace.engine.seek import to_move
from tailrace.engine.shared_stream import SharedStream
from tailrace.engine.status.gauges import gauges
from tailrace.engine.status.status import Status
from tailrace.engine.status.watcher_state import ENDED, WatcherState
from tailrace.engine.stream_slots import StreamSlots
from tailrace.model.desired_state import DesiredState
from tailrace.model.start import NOW
from tailrace.stream import Interrupt


class Watcher:
    """Follows one scope until it is stopped or halted; :attr:`status` describes its shared course,
    and :attr:`apart` those of the handlers that are on their own."""

    def __init__(self, plan: ScopePlan, runtime: Runtime, status: Status | None = None) -> None:
        self.plan = plan
        handlers = [routed.handler for routed in plan.routed]
        self._recorders = {
            each.name: runtime.metrics.recorder(plan.scope.name, each.name) for each in handlers
        }
        for handler in handlers:
            self._recorders[handler.name].columns = handler.columns
        lease = partial(runtime.lease, plan.scope.name)
        self.status = status or Status(plan.scope, runtime.clock, self._recorders, lease=lease)
        self._runtime = runtime
        self._desired = CurrentDesiredState(plan.scope.name)
        self.scope = FollowedScope(
            plan,
            runtime,
            self._new_claim(None),
            self._desired,
            {each.name: Breaker(each.failure, self._recorders[each.name]) for each in handlers},
            {
                # No lock, which belongs to a task: handlers may end the task that calls them.
                each.name: anyio.Semaphore(1, fast_acquire=True)
                for each in handlers
                if isinstance(each.calls, PerBatch) and each.calls.concurrency == 1
            },
            StreamSlots(plan.catch_up_streams),
            self.status,
            SideCalls(plan.scope.name),
        )
        self._shared_stream = SharedStream()
        self._apart: dict[str, Follow] = {}
        self._shared = self._shared_course()
        self._changed = anyio.Event()
        """Set when the course of a handler on its own, or of a replay, has ended."""
        self.replays = Replays(
            self.scope, self.runs, self._end_if_fenced, lambda: self._changed.set()
        )
        self.scope.begin_replays = self.replays.begin
        self._following = self._is_replaced = False
        self.fenced = False
        """Whether the watcher ended because the store holds a newer position or its lease ended."""
        self._log = structlog.get_logger().bind(scope=plan.scope.name)
        self.status.waits_for = partial(waits_for, plan.scope.name)
        self.status.apart = lambda: self.apart
        self.status.replays = lambda: self.replays.status
        runtime.metrics.watch(plan.scope.name, partial(gauges, self.status))

    def _new_claim(self, lease: HeldLease | None) -> CheckpointClaim:
        names = [each.name for each in self.plan.routed] or [""]
        return CheckpointClaim(self.plan.scope.name, names, lease)

    def _shared_course(self) -> Follow:
        routed = list(self.plan.routed)
        on_detach = self._detach if len(routed) > 1 else None
        course = Course(self.scope, routed, self.status, self.plan.rows, on_detach)
        self.status.snapshot = lambda: course.rows.observed()
        return Follow(course, self._shared_stream)

    @property
    def name(self) -> str:
        """The scope's name."""
        return self.plan.scope.name

    @property
    def claim(self) -> CheckpointClaim:
        """The claim on the scope's checkpoint, with its epoch (0 before the first run)."""
        return self.scope.claim

    def runs(self, handler: str) -> bool:
        """Whether the run of a handler is reading, or draining."""
        return self._apart.get(handler, self._shared).running is not None

    @property
    def apart(self) -> Mapping[str, Status]:
        """By handler that is on its own, the status of its course."""
        return {name: each.course.status for name, each in self._apart.items()}

    def status_of(self, handler: str) -> Status:
        """The status of the course in which a handler is."""
        return self.apart.get(handler, self.status)

    def rows_of(self, handler: str | None) -> RowSource:
        """The reader of documents of a handler that is on its own, else that of the scope."""
        of = self._apart.get(handler or "")
        return of.course.rows if of is not None else self._shared.course.rows

    @property
    def begins_somewhere(self) -> bool:
        """Whether it is settled where the scope begins: a later "now" would skip changes."""
        status, lease = self.status, self.status.lease()
        if self.plan.start != NOW or status.checkpoint is not None or status.state in ENDED:
            return True
        if lease is None or lease.held:
            return False
        return status.state is WatcherState.STANDBY and bool(lease.owner)

    @property
    def generations(self) -> dict[str, int | None]:
        """The generation of the desired state, and that of the last one that has its effect.

        The latter is ``None`` where another process follows the scope.
        """
        state, generation, desired = self.status.state, self._desired.generation, self._desired
        if state is WatcherState.STANDBY:
            return {"generation": generation, "observed_generation": None}
        names = [each.name for each in self.plan.routed] or [""]
        paused = all(
            (self.status_of(name).state is WatcherState.PAUSED) is desired.of(name).paused
            for name in names
        )
        moved = not to_move(desired.state, names, self.claim)
        observed = generation if paused and moved else max(generation - 1, 0)
        return {"generation": generation, "observed_generation": observed}

    def anew(self, by: str) -> Watcher:
        """The next watcher of a halted scope. It keeps the status, with its counts and errors."""
        self._is_replaced = True
        self._runtime.metrics.restarts.labels(self.name, by).inc()
        self.status.counts.restarts += 1
        self.status.enter(WatcherState.STARTING, f"restarted by {by}")
        self._log.info("scope.restarted", by=by)
        return Watcher(self.plan, self._runtime, self.status)

    def apply(self, desired: DesiredState) -> None:
        """Applies a desired state: ends the runs, drained, of which it demands that."""
        newer = self._desired.receive(desired)
        if self._following and self.claim.epoch:
            self.replays.begin()
        for follow in [self._shared, *self._apart.values()]:
            if follow.course.status.state is not WatcherState.STANDBY:
                self._desired.request_snapshot(
                    follow.course.rows, follow.course.names, self.claim.snapshot_of
                )
            if newer:
                self._end_run(follow)

    def _end_run(self, follow: Follow) -> None:
        """Ends a run, or lets handlers leave it, if the desired state demands that."""
        desired, names, run = self._desired, follow.course.names, follow.now
        demands = {
            name
            for name in names
            if desired.of(name).paused or to_move(desired.state, [name], self.claim)
        }
        if len(names) > 1:
            demands |= {n for n in names if desired.wants_alone(n, self.claim.snapshot_of(n))}
        if not demands or follow.running is None:
            return
        if run is None or demands == set(names) or not run.handlers.let_go(demands):
            follow.running.set()

    async def run(self, stop: Interrupt, lease: HeldLease | None = None) -> None:
        """Follows the scope until its state is ``stopped`` or ``halted``.

        With a ``lease`` it also returns if :attr:`fenced`: another process owns the scope.
        """
        self.fenced = False
        if lease is not None:
            self.scope.claim = self._new_claim(lease)
            self._desired.is_loaded = False
        self._apart.clear()
        self._shared = self._shared_course()
        try:
            with stop.child() as self.scope.stop:
                async with anyio.create_task_group() as self.scope.tasks:
                    self._following = True
                    while await self._follow_shared():
                        pass
        finally:
            self._following = False
            if self.status.state not in ENDED:
                self._apart.clear()

    async def _follow_shared(self) -> bool:
        """Follows the shared stream; returns whether it is to be followed again."""
        stop = self.scope.stop
        await self._shared.run(stop)
        self._end_if_fenced(self._shared)
        with stop.interrupts():
            while self.goes_on:
                self._changed = anyio.Event()
                await self._changed.wait()
        if self.status.state is WatcherState.STOPPED:
            stop.set()
        return self.status.starting and not (stop.is_set or self._is_replaced)

    @property
    def goes_on(self) -> bool:
        """Whether handlers on their own, or replays, go on while the shared course is halted, or
        has ended with an invalidate that they have not reached."""
        others = any(each.course.status.state not in ENDED for each in self._apart.values())
        return (others or bool(self.replays.running)) and self.status.state in ENDED

    def _end_if_fenced(self, follow: Follow) -> None:
        """Ends the scope if another process owns it."""
        if follow.fenced:
            self.fenced = True
            self.scope.stop.set()

    # --- handlers on their own -----------------------------------------------------------------

    def _detach(self, routed: Routed, error: Exception | None, former: Former | None) -> None:
        """A handler goes on in a course of its own."""
        status = self.scope.status_apart(routed.name, self._recorders[routed.name])
        status.checkpoint, status.waits_for = self.status.checkpoint, self.status.waits_for
        if former is not None:
            status.enter(WatcherState.WAITING, "ends its running calls")
        course = Course(self.scope, [routed], status, routed.rows(), alone=True)
        status.snapshot = course.rows.observed
        follow = self._apart[routed.name] = Follow(course, self._shared_stream)
        name = f"handler {routed.name} of {self.name}"
        self.scope.tasks.start_soon(self._catch_up, follow, error, former, name=name)

    async def _catch_up(
        self, follow: Follow, error: Exception | None, former: Former | None
    ) -> None:
        """Follows a course of one handler until it ends, or comes back to the shared one."""
        stop, routed = self.scope.stop, follow.course.routed[0]
        if former is not None:
            await former.ended.wait()
            error = former.failure
        if former is not None and former.invalidated and self.plan.stop_on_invalidate:
            follow.course.status.enter(WatcherState.STOPPED)
        elif error is None or await follow.begin_after(error, stop):
            joined = await follow.run(stop)
            self._end_if_fenced(follow)
            if joined is not None:
                self._shared.course.routed.append(routed)
                del self._apart[routed.name]
                self._log.info("subscription.attached", handler=routed.name)
                self._end_run(self._shared)  # something else may be wanted meanwhile
        self._changed.set()

    def restart(self, by: str, handler: str | None = None) -> str:
        """Restarts what is halted beside handlers that go on: a handler on its own, or everything;
        returns why it cannot."""
        state = WatcherState.HALTED
        halted = [n for n, e in self.apart.items() if e.state is state and handler in (None, n)]
        together = self._shared.course.names if self.status.state is state else []
        if handler is not None and together != [handler]:
            if handler in together:
                what = f"handler {handler!r} of scope {self.name!r} is halted with others"
                return f"{what}: 'tailrace scopes restart {self.name}' restarts them"
            together = []
        what = f"handler {handler!r} of " if handler is not None else ""
        if not (halted or together):
            now = self.status_of(handler or "").state.value
            return f"{what}scope {self.name!r} is {now}: only a halted one is restarted"
        if not self._following or self.scope.stop.is_set:
            return f"{what}scope {self.name!r} is not followed any more: nothing can restart it"
        self._runtime.metrics.restarts.labels(self.name, by).inc()
        self._log.info("scope.restarted", by=by, handlers=[*together, *halted])
        for name in halted:
            self._detach(self._apart[name].course.routed[0], None, None)
        if together:
            self.status.enter(WatcherState.STARTING, f"restarted by {by}")
            self._changed.set()
        return ""
