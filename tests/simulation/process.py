"""One process of the service: a supervisor, its watchers, connections of its own, and leases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any

import anyio
import structlog

from tailrace.engine import (
    ByteBudget,
    Runtime,
    Supervisor,
    Watcher,
    WatcherState,
    watch_desired_states,
)
from tailrace.engine.held_lease import ObservedLease
from tailrace.engine.status.subscription_state import subscription_state
from tailrace.errors import CheckpointError, DeadLetterError, LeaseError
from tailrace.model import PositionKind
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.lease import Member
from tailrace.observe.metrics import Metrics
from tailrace.replicas.leases import Leases
from tailrace.replicas.times import LeaseTimes
from tailrace.stream import Interrupt, ServerClock
from tests.simulation.faults import Gate
from tests.simulation.source import SimulatedDriver
from tests.simulation.stores import SimulatedStore
from tests.simulation.world import NotedLetters, SimulatedScope, World

CLUSTER = ClusterIdentity("rs0", "simulation")
GRACE_SECONDS = 25.0
PROCESS: ContextVar[int] = ContextVar("process", default=0)
"""The process to which a task belongs, by its number; 0: to none."""


class Process:
    """Follows the scopes until it is stopped or killed. ``member``: its name among those that share
    them; ``number``: of this process among all of the run."""

    def __init__(self, world: World, member: str, number: int) -> None:
        self.gate = Gate()
        self.stop = Interrupt()
        self.member, self.number = member, number
        self._running = self.gate.running
        self._ended = anyio.Event()
        self._world = world
        self.failure: BaseException | None = None
        """What ended it, if neither a stop nor a kill did."""
        self._context: Context | None = None
        checkpoints = self._store(world.checkpoints, CheckpointError)
        letters = self._store(NotedLetters(world), DeadLetterError, "held")
        states = world.desired_states
        self._desired_states = SimulatedStore(
            states, self.gate, world.store_faults, CheckpointError, lambda name: None
        )
        self.metrics = Metrics(state.value for state in WatcherState)
        self.supervisor = Supervisor(300)
        self._leases = self._leases_of(checkpoints)
        self.runtime = Runtime(
            SimulatedDriver(world.server, self.gate),
            checkpoints,
            letters,
            self._desired_states,  # type: ignore[arg-type]
            CLUSTER,
            ByteBudget(world.budget),
            self.metrics,
            ServerClock(world.clock),
            now=world.server.time,
            lease=self._observed,
        )
        self.supervisor.watchers = [
            Watcher(scope.plan(world.server, self.gate), self.runtime) for scope in world.scopes
        ]

    def _store(self, inner: Any, error: type[Any], *at_once: str) -> Any:
        faults = self._world.store_faults
        return SimulatedStore(inner, self.gate, faults, error, self._store_failed, at_once=at_once)

    def _leases_of(self, checkpoints: Any) -> Leases | None:
        world = self._world
        if world.lease_faults is None:
            return None
        store: Any = SimulatedStore(
            world.leases, self.gate, world.lease_faults, LeaseError, lambda name: None
        )
        return Leases(
            [scope.name for scope in world.scopes],
            Member.named(self.member, "host", str(self.number)),
            store,
            checkpoints,
            self.metrics,
            LeaseTimes(10),
            GRACE_SECONDS,
            self.supervisor.restart,
            clock=world.clock,
        )

    def _observed(self, scope: str) -> ObservedLease | None:
        return None if self._leases is None else self._leases.observed(scope)

    async def run(self) -> None:
        """Until a stop, a kill, or a failure that it does not survive."""
        PROCESS.set(self.number)
        self._context = copy_context()
        supervisor, leases = self.supervisor, self._leases
        try:
            with self._running:
                try:
                    async with anyio.create_task_group() as beside:
                        beside.start_soon(
                            watch_desired_states,
                            self._desired_states,
                            supervisor.apply,
                            name="orders",
                        )
                        if leases is not None:
                            beside.start_soon(leases.run, self.stop, name="leases")
                        follow = Watcher.run if leases is None else leases.follow
                        await supervisor.run(self.stop, follow)
                        beside.cancel_scope.cancel()
                finally:
                    if leases is not None:
                        await leases.close()
        except Exception as error:  # noqa: BLE001 - reported by the run
            self.failure = error if self.gate.is_open else None
        finally:
            if self.gate.is_open and supervisor.unsaved:
                self._world.reasons.note("a position that was not saved")
            self._ended.set()

    def kill(self) -> None:
        """As SIGKILL: nothing that it does from now on has an effect."""
        if self.gate.is_open and not self.ended:
            self.gate.close()
            self._world.reasons.note("a kill")
            structlog.get_logger().debug("simulation.killed", process=self.number)
            self._running.cancel()

    def terminate(self) -> None:
        """As SIGTERM: it drains within the grace period."""
        self._in_it(self._terminate)

    def _terminate(self) -> None:
        if not self.stop.is_set:
            self.stop.set()
            self._running.deadline = anyio.current_time() + GRACE_SECONDS

    def force(self) -> None:
        """As a second SIGTERM."""
        self._in_it(self._running.cancel)

    def restart(self, scope: str, handler: str | None = None) -> None:
        """As ``tailrace scopes restart``."""
        self._in_it(partial(self.supervisor.restart, scope, handler=handler))

    def reload(self, scope: str) -> None:
        """Takes over how the scope is configured now."""
        self._in_it(partial(self._reload, scope))

    def _in_it(self, call: Callable[[], object]) -> None:
        """Makes a call in the process: not while it sleeps."""
        if self._context is not None:
            asyncio.get_running_loop().call_soon(call, context=self._context)

    def _reload(self, scope: str) -> None:
        if self.supervisor.unchangeable:
            return
        of = self._world.find(scope)

        async def begin() -> Watcher:
            await self.supervisor.end_side_calls(scope, GRACE_SECONDS)
            self.metrics.retain(scope, [each.name for each in of.destinations])
            return Watcher(of.plan(self._world.server, self.gate), self.runtime)

        self.supervisor.change(scope, begin, GRACE_SECONDS)

    async def until_ended(self) -> None:
        """Returns when nothing of it runs any more."""
        await self._ended.wait()

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._ended.is_set()

    @property
    def goes_on(self) -> bool:
        """Whether it runs, and was neither stopped nor killed."""
        return self.gate.is_open and not self.ended and not self.stop.is_set

    @property
    def has_ended_itself(self) -> bool:
        """Whether it has ended because its scopes have: neither a stop nor a kill did it."""
        cancelled = self._running.cancel_called
        return self.ended and self.gate.is_open and not (self.stop.is_set or cancelled)

    @property
    def not_at_an_invalidate(self) -> list[str]:
        """The handlers that are stored elsewhere than behind one invalidate of their scope."""
        left = list[str]()
        for watcher in self.supervisor.watchers:
            names = [each.name for each in watcher.plan.routed]
            found = {name: watcher.claim.of(name) for name in names}
            at = {name: one.position for name, one in found.items() if one is not None}
            ends = {one.start_point for one in at.values()}
            invalid = any(one.kind is not PositionKind.INVALIDATE for one in at.values())
            if invalid or len(ends) != 1 or len(at) < len(names):
                left += [f"{name} of {watcher.name}: {at.get(name)}" for name in names]
        return left

    @property
    def followed(self) -> list[Watcher]:
        """The watchers of the scopes that it follows now."""
        return [w for w in self.supervisor.watchers if w.status.state is not WatcherState.STANDBY]

    def states(self, scope: str) -> Iterator[tuple[str, str]]:
        """The handlers of a scope, and their states."""
        found = self.supervisor.find(scope)
        if found is not None:
            for each in found.plan.routed:
                status = found.status_of(each.name)
                apart = each.name in found.apart
                yield each.name, subscription_state(status, apart=apart).value

    def state(self, scope: str) -> WatcherState:
        """The state of a scope, as everybody can see it."""
        found = self.supervisor.find(scope)
        return found.status.state if found is not None else WatcherState.STOPPED

    def halted(self, scope: str) -> list[str]:
        """The handlers of a scope that are halted."""
        found = self.supervisor.find(scope)
        courses = [] if found is None else [found.status, *found.apart.values()]
        if all(each.state is not WatcherState.HALTED for each in courses):
            return []
        return [name for name, state in self.states(scope) if state == "halted"]

    def has_reloaded(self, scope: SimulatedScope) -> bool:
        """Whether it has the handlers of a scope as they are configured now."""
        found = self.supervisor.find(scope.name)
        return {name for name, _ in self.states(scope.name)} == scope.names or found is None

    def paused_snapshots(self, scope: str) -> Iterator[str | None]:
        """The handlers whose own snapshot is paused; ``None`` for that of all others."""
        found = self.supervisor.find(scope)
        courses = {} if found is None else {None: found.status, **found.apart}
        for handler, status in courses.items():
            snapshot = status.handled_snapshot
            if snapshot is not None and snapshot.progress.paused:
                yield handler

    def explanation(self, scope: str) -> str:
        """The state of a scope and of its handlers, with the reason."""
        found = self.supervisor.find(scope)
        if found is None:
            return "not followed"
        status, handlers = found.status, dict(self.states(scope))
        why = status.explanation or status.reason
        snapshot = status.handled_snapshot and status.handled_snapshot.progress.state.value
        return f"{status.state.value}: {why} {handlers} {found.generations} {snapshot}"

    def _store_failed(self, method: str) -> None:
        if self.gate.is_open:
            self._world.reasons.note(f"the store failed in {method!r}")
