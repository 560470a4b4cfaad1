"""The replays of a scope: each is a subscription with an end, in a course of its own.

It goes through the same delivery as any change, beside the handler's own course. Its position is
stored, so it goes on after a restart, or in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import anyio
import structlog

from tailrace.engine.course import Course, FollowedScope
from tailrace.engine.current_desired_state import CurrentDesiredState
from tailrace.engine.follow import Follow
from tailrace.engine.plan.router import Routed
from tailrace.engine.plan.row_source import NoRows
from tailrace.engine.replayed_span import ReplayedSpan
from tailrace.engine.shared_stream import SharedStream
from tailrace.engine.status.status import Status
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.engine.stream_slots import StreamSlots
from tailrace.errors import CheckpointError, CheckpointFenced, ScopeHalted, describe
from tailrace.model import Checkpoint
from tailrace.model.checkpoint import replay_to
from tailrace.model.desired_state import DesiredState, DesiredStateTable
from tailrace.model.replay import Replay, ReplayRequest, ReplayState
from tailrace.stream import Interrupt

_LOOK_SECONDS = 0.05
_CANCEL_SECONDS = 2.0
"""How long the running calls of a cancelled replay may take. Then they are cancelled, too."""


class _NoDesiredStates:
    """Those of a replay: what is wanted of its scope is not wanted of it."""

    async def load(self, scope: str) -> DesiredState | None:
        return None

    async def list(self) -> DesiredStateTable:
        return DesiredStateTable((), {})

    async def write(self, desired: DesiredState) -> bool:
        return False

    async def note(self, former: Checkpoint) -> None: ...

    async def positions(self, scope: str) -> Sequence[Checkpoint]:
        return ()


@dataclass(slots=True, eq=False)
class RunningReplay:
    """One that goes on, in ``tasks``. ``ends`` it, drained; ``cancelled``: for good."""

    span: ReplayedSpan
    status: Status
    tasks: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ends: Interrupt = field(default_factory=Interrupt)
    cancelled: bool = False

    def cancel(self) -> None:
        """Begins no further call, and ends those that run."""
        if self.cancelled:
            return  # the desired state is read every second
        self.cancelled = True
        self.ends.set()
        self.tasks.deadline = anyio.current_time() + _CANCEL_SECONDS


@dataclass(slots=True, eq=False)
class Replays:
    """Those of one ``scope``, one to a handler at a time. ``runs``: whether a handler's own course
    calls it now. ``fenced`` gets each course that ends, which may be as another process follows the
    scope; ``ended`` is called then."""

    scope: FollowedScope
    runs: Callable[[str], bool]
    fenced: Callable[[Follow], None]
    ended: Callable[[], None]
    running: dict[str, RunningReplay] = field(default_factory=dict)
    _slot: StreamSlots = field(default_factory=lambda: StreamSlots(1))

    @property
    def status(self) -> Mapping[str, Status]:
        """By handler, the status of the course of its replay."""
        return {name: each.status for name, each in self.running.items()}

    def begin(self) -> None:
        """Begins those that are wanted, goes on with those that have not ended, and ends those
        that are cancelled."""
        for routed in self.scope.plan.routed:
            running, replay = self.running.get(routed.name), self._wanted(routed.name)
            if running is not None:
                if replay is None or replay.generation > running.span.replay.generation:
                    running.cancel()
            elif replay is not None:
                self._begin(routed, replay)

    def _wanted(self, handler: str) -> Replay | None:
        """What is to come again to a handler now."""
        wish = self.scope.desired.of(handler)
        known = self.scope.claim.of(replay_to(handler))
        last = known.replay if known is not None else None
        if last is not None and last.generation >= wish.replay_generation:
            failed = known is not None and known.halted
            return last if last.state is ReplayState.RUNNING and not failed else None
        if wish.replay is None:
            return None  # it was cancelled, or an operator has reset the scope
        return Replay(wish.replay, wish.replay_generation, self.scope.desired.by)

    def last(self, handler: str) -> Replay | None:
        """The last replay to a handler: one that goes on or is to begin, or one that has ended."""
        known = self.scope.claim.of(replay_to(handler))
        wanted = self._wanted(handler)
        return wanted if wanted is not None or known is None else known.replay

    def is_wanted(self, handler: str) -> bool:
        """Whether a replay to a handler goes on, or is to begin."""
        return handler in self.running or self._wanted(handler) is not None

    def _begin(self, routed: Routed, replay: Replay) -> None:
        scope, course = self.scope, self.course(routed, replay)
        assert course.replay is not None  # noqa: S101 - for the type checker
        running = self.running[routed.name] = RunningReplay(course.replay, course.status)
        if routed.handler.commit is not None:  # it would commit both together
            scope.desired.hold(routed.name)
        name = f"replay to {routed.name} of {scope.plan.scope.name}"
        scope.tasks.start_soon(self._run, routed.name, running, course, name=name)

    def course(self, routed: Routed, replay: Replay) -> Course:
        """The course of a replay to a handler."""
        span, scope = ReplayedSpan(replay), self.scope
        own = span.routed(routed)
        status = scope.status_apart(own.name, scope.breakers[routed.name].recorder)
        return Course(self._scope_of(span, own), [own], status, NoRows(), alone=True, replay=span)

    def _scope_of(self, span: ReplayedSpan, routed: Routed) -> FollowedScope:
        """The scope as a replay follows it: without what is wanted of it, and to its end."""
        scope, plan = self.scope, self.scope.plan
        plan = replace(
            plan,
            options=span.options(plan.options),
            routed=[routed],
            stop_on_invalidate=False,
            skip_lost_history=False,
        )
        own = replace(
            scope,
            plan=plan,
            runtime=replace(scope.runtime, desired_states=_NoDesiredStates()),
            desired=CurrentDesiredState(plan.scope.name),
            streams=self._slot,
            begin_replays=lambda: None,
        )
        own.tasks, own.stop = scope.tasks, scope.stop
        return own

    async def _run(self, handler: str, running: RunningReplay, course: Course) -> None:
        """Follows the course to the end of the span, unless something ends it before."""
        try:
            await self._follow(handler, running, course)
        finally:  # also if the lease is lost: in the next term it begins again
            del self.running[handler]
            self.scope.desired.release(handler)
        self.ended()
        if running.cancelled:  # another one may be wanted
            self.begin()

    async def _follow(self, handler: str, running: RunningReplay, course: Course) -> None:
        follow, name = Follow(course, SharedStream()), course.names[0]
        with self.scope.stop.child() as running.ends:
            if running.cancelled:
                running.ends.set()
            if course.routed[0].handler.commit is not None:
                while self.runs(handler) and not running.ends.is_set:
                    await running.ends.sleep(_LOOK_SECONDS)
            with running.tasks:
                async with anyio.create_task_group() as course.scope.tasks:
                    await follow.run(running.ends)
        self.fenced(follow)
        state = course.status.state.value
        goes_on = state != WatcherState.HALTED  # in the next run of the scope, here or elsewhere
        if follow.arrived or running.cancelled:
            state = ReplayState.DONE if follow.arrived else ReplayState.CANCELLED
            goes_on = False
            await self._save(name, running.span.now(state))
        structlog.get_logger().info(
            "replay.interrupted" if goes_on else "replay.ended",
            scope=self.scope.plan.scope.name,
            handler=handler,
            by=running.span.replay.by,
            state=state,
            reason=course.status.reason,
            handled=running.span.handled,
        )

    async def _save(self, name: str, replay: Replay) -> None:
        """Stores how a replay has ended; if that fails, its last changes may come once more."""
        scope, plan, failures = self.scope, self.scope.plan, 0
        if (known := scope.claim.of(name)) is None:
            return
        while not scope.stop.is_set:
            try:
                ended = {name: replace(known, replay=replay)}
                await scope.claim.save(scope.runtime.store, scope.identity, ended)
            except CheckpointFenced:
                return
            except CheckpointError as error:
                failures += 1
                scope.status.errors.note(describe(error))
                await scope.stop.sleep(plan.backoff.delay(failures))
            else:
                return


async def replay_alone(replays: Replays, routed: Routed, request: ReplayRequest) -> None:
    """Hands a span to a handler of a scope that is not followed meanwhile.

    Raises :class:`ScopeHalted` if it does not come to its end.
    """
    scope, stop = replays.scope, Interrupt()
    async with anyio.create_task_group() as tasks:
        scope.tasks, scope.stop = tasks, stop
        await scope.claim.load(scope.runtime.store)
        course = replays.course(routed, Replay(request, 1, ""))
        follow = Follow(course, SharedStream())
        await follow.run(stop)
    if not follow.arrived:
        raise ScopeHalted(course.status.reason)
