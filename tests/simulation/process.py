"""One process of the service: a supervisor, a watcher of the scope, and connections of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from tailrace.engine import (
    ByteBudget,
    Routed,
    Runtime,
    ScopePlan,
    Supervisor,
    Watcher,
    WatcherState,
    watch_orders,
)
from tailrace.errors import CheckpointError, DeadLetterError
from tailrace.event import ChangeEvent
from tailrace.model import Checkpoint
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.failure_policy import Backoff
from tailrace.model.gap import Gap
from tailrace.observe.metrics import Metrics
from tailrace.stores.memory import MemoryCheckpoints, MemoryDeadLetters, MemoryOrders
from tailrace.stream import ChangeStreamOptions, Interrupt, ServerClock
from tailrace.testing.oplog import START
from tests.simulation.destinations import Destination
from tests.simulation.faults import Faults, Gate
from tests.simulation.ledger import Expected, Reasons
from tests.simulation.source import Server, SimulatedDriver
from tests.simulation.stores import SimulatedStore

CLUSTER = ClusterIdentity("rs0", "simulation")
GRACE_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class Service:
    """How every process of a run is configured."""

    plan: ScopePlan
    """Without handlers."""
    budget: int


@dataclass(eq=False)
class World:
    """What outlives a process."""

    server: Server
    store_faults: Faults
    destinations: Sequence[Destination]
    expected: Expected
    reasons: Reasons
    checkpoints: MemoryCheckpoints = field(init=False)
    letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)
    orders: MemoryOrders = field(default_factory=MemoryOrders)

    def __post_init__(self) -> None:
        self.checkpoints = _NotedCheckpoints(self)


class _NotedCheckpoints(MemoryCheckpoints):
    """The checkpoints and gaps. The ledgers hear of gaps, and of moves by an operator's order."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def save(self, checkpoint: Checkpoint) -> None:
        before = await self.load(checkpoint.scope)
        await super().save(checkpoint)
        for destination in self._world.destinations:
            now = checkpoint.of(destination.name)
            former = before.of(destination.name) if before is not None else None
            if now is not None and now.obeyed > (former.obeyed if former is not None else 0):
                self._world.reasons.note("a seek")
                destination.ledger.moved(now.position.cluster_time or START)

    async def record_gap(self, gap: Gap) -> None:
        await super().record_gap(gap)
        for destination in self._world.destinations:
            destination.ledger.skip(gap.since, gap.until or self._world.server.oplog.now)


class _NotedLetters:
    """The dead letters, of which the ledgers hear."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.letters, name)

    async def add(self, letter: DeadLetter, epoch: int) -> None:
        await self._world.letters.add(letter, epoch)
        of = next(each for each in self._world.destinations if each.name == letter.handler)
        numbers = of.numbers([ChangeEvent.from_raw(letter.raw)])
        of.checked(lambda: of.ledger.set_aside(*numbers))


class Process:
    """Follows the scope until it is stopped or killed."""

    def __init__(self, service: Service, world: World) -> None:
        self.gate = Gate()
        self.stop = Interrupt()
        self._running = anyio.CancelScope()
        self._ended = anyio.Event()
        self._world = world
        self.failure: BaseException | None = None
        """What ended it, if neither a stop nor a kill did."""
        faults = world.store_faults
        checkpoints = SimulatedStore(
            world.checkpoints, self.gate, faults, CheckpointError, self._store_failed
        )
        letters = SimulatedStore(
            _NotedLetters(world),
            self.gate,
            faults,
            DeadLetterError,
            self._store_failed,
            at_once={"held"},
        )
        self._orders = SimulatedStore(
            world.orders, self.gate, faults, CheckpointError, lambda name: None
        )
        runtime = Runtime(
            SimulatedDriver(world.server, self.gate),
            checkpoints,  # type: ignore[arg-type]
            letters,  # type: ignore[arg-type]
            CLUSTER,
            ByteBudget(service.budget),
            Metrics(state.value for state in WatcherState),
            ServerClock(anyio.current_time),
            orders=self._orders,  # type: ignore[arg-type]
            now=world.server.time,
        )
        self.plan = ScopePlan(
            **{
                name: getattr(service.plan, name)
                for name in ScopePlan.__dataclass_fields__
                if name != "routed"
            },
            routed=[Routed(each.handler(self.gate), None) for each in world.destinations],
        )
        self.supervisor = Supervisor(300)
        self.supervisor.watchers = [Watcher(self.plan, runtime)]

    async def run(self) -> None:
        """Until a stop, a kill, or a failure that it does not survive."""
        supervisor = self.supervisor
        try:
            with self._running:
                async with anyio.create_task_group() as beside:
                    beside.start_soon(watch_orders, self._orders, supervisor.obey, name="orders")
                    await supervisor.run(self.stop)
                    beside.cancel_scope.cancel()
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
            self._running.cancel()

    def terminate(self) -> None:
        """As SIGTERM: it drains within the grace period."""
        if not self.stop.is_set:
            self.stop.set()
            self._running.deadline = anyio.current_time() + GRACE_SECONDS

    def force(self) -> None:
        """As a second SIGTERM."""
        self._running.cancel()

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
    def handler_states(self) -> list[str]:
        """The state of each handler."""
        scope = self.supervisor.status()["orders"]
        return [each["state"] for each in scope["handlers"].values()]

    @property
    def state(self) -> WatcherState:
        """The state of the scope, as everybody can see it."""
        return self.supervisor.watchers[0].status.state

    @property
    def explanation(self) -> str:
        """The state and its reason."""
        status = self.supervisor.watchers[0].status
        return f"{status.state.value}: {status.explanation or status.reason}"

    def _store_failed(self, method: str) -> None:
        if self.gate.is_open:
            self._world.reasons.note(f"the store failed in {method!r}")


def plan_of(
    scope: Any,
    options: ChangeStreamOptions,
    *,
    lanes: int,
    checkpoint_seconds: float,
    start: Any,
    **more: Any,
) -> ScopePlan:
    """The plan of the scope, without handlers."""
    return ScopePlan(
        scope,
        options,
        (),
        Backoff(0.5, 5.0),
        start=start,
        lanes=lanes,
        checkpoint_seconds=checkpoint_seconds,
        **more,
    )
