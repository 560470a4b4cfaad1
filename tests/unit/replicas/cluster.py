"""Several processes with their leases, their watchers and one store, in simulated time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import anyio

from tailrace.engine import (
    Handler,
    PerEvent,
    Routed,
    RunIdentity,
    Supervisor,
    Watcher,
    WatcherState,
)
from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tailrace.model.failure_policy import Backoff
from tailrace.model.lease import Member
from tailrace.observe.metrics import Metrics
from tailrace.replicas.leases import Leases
from tailrace.replicas.times import LeaseTimes
from tailrace.stores.memory import MemoryCheckpoints
from tailrace.stores.memory_leases import MemoryLeases
from tailrace.stream import Interrupt
from tests.unit.engine.changes import change, number
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Watching
from tests.unit.replicas.remote_store import RemoteCheckpoints, RemoteLeases, Saved, Wire
from tests.unit.replicas.simulated_time import PROCESS, the_loop, until

TTL = 10.0


class HandedOver(NamedTuple):
    """An event that a process gave to the handler."""

    at: float
    process: str
    scope: str
    epoch: int
    event: int


@dataclass(eq=False)
class Process:
    """One that runs until it is stopped; its own clock has an offset of its own."""

    cluster: Cluster
    id: str
    name: str
    offset: float
    max_scopes: int = 0
    scopes: Collection[str] = ()
    """Those that it configures; empty: all."""
    handler_seconds: float = 0.05
    stubborn: bool = False
    """Its handlers do not end where they are cancelled."""
    open: list[str] = field(default_factory=list)
    """The scopes whose handlers have open objects."""
    wire: Wire = field(default_factory=Wire)
    stop: Interrupt = field(default_factory=Interrupt)
    killed: bool = False
    stopped: bool = False
    leases: Leases = field(init=False)
    supervisor: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        cluster, loop = self.cluster, the_loop()
        self.supervisor = Supervisor(300)
        checkpoints = RemoteCheckpoints(cluster.checkpoints, self.wire, self.id, cluster.saved)
        self.leases = Leases(
            self.scopes or tuple(cluster.drivers),
            Member(self.id, self.name, self.max_scopes),
            RemoteLeases(cluster.leases, self.wire),
            checkpoints,
            Metrics(state.value for state in WatcherState),
            LeaseTimes(cluster.ttl),
            cluster.ttl / 2,
            self.supervisor.restart,
            lambda: loop.time() + self.offset,
            self._entered,
        )
        for scope in self.scopes or cluster.drivers:
            driver = cluster.drivers[scope]
            watching = Watching(
                driver,
                Routed(Handler("audit", PerEvent(self._handle)), None),
                store=checkpoints,
                scope=Scope(scope, "shop", scope),
                lease=self.leases.observed,
                backoff=Backoff(0.2, 1),
                checkpoint_seconds=1,
            )
            self.supervisor.watchers.append(watching.watcher)

    async def run(self) -> None:
        PROCESS.set(self.id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.leases.run, self.stop)
            await self.supervisor.run(self.stop, self.leases.follow)
            tasks.cancel_scope.cancel()
        await self.leases.close()
        self.stopped = True

    @asynccontextmanager
    async def _entered(self, scope: str) -> AsyncIterator[None]:
        self.open.append(scope)
        try:
            yield
        finally:
            self.open.remove(scope)

    async def _handle(self, event: ChangeEvent, identity: RunIdentity) -> None:
        if identity.scope not in self.open:
            self.cluster.unopened.append(event)
        at = the_loop().time()
        scope, epoch = identity.scope, identity.epoch
        self.cluster.handed_over.append(HandedOver(at, self.id, scope, epoch, number(event)))
        with anyio.CancelScope(shield=self.stubborn):
            await anyio.sleep(self.handler_seconds)

    @property
    def watcher(self) -> Watcher:
        """That of its only scope."""
        (found,) = self.supervisor.watchers
        return found

    def follows(self, scope: str) -> bool:
        found = self.leases.observed(scope) if scope in self.leases.names else None
        return found is not None and found.held


class Cluster:
    """The store, a source per scope that gets an event each second, and the processes."""

    def __init__(self, *scopes: str, ttl: float = TTL) -> None:
        self.ttl = ttl
        self.shift = 0.0
        """Of the store's clock, as after an election."""
        self.leases = MemoryLeases(lambda: the_loop().time() + self.shift)
        self.checkpoints = MemoryCheckpoints()
        self.drivers = {scope: ScriptedDriver(change(0)) for scope in scopes}
        for driver in self.drivers.values():
            driver.await_seconds = 1.0
        self.handed_over: list[HandedOver] = []
        self.saved: list[Saved] = []
        self.unopened: list[ChangeEvent] = []
        """Those that were handed to a handler whose object was not open."""
        self.processes: list[Process] = []
        self.tasks: anyio.abc.TaskGroup

    async def write(self) -> None:
        for event in range(1, 10_000):
            await anyio.sleep(1)
            for driver in self.drivers.values():
                driver.oplog.append(change(event, key=0))

    def start(self, name: str, **more: Any) -> Process:
        number = len(self.processes)
        process = Process(self, f"{name}/{number}", name, offset=1000.0 * number, **more)
        self.processes.append(process)
        self.tasks.start_soon(process.run)
        return process

    def terminate(self, process: Process) -> None:
        """SIGTERM, of which a frozen process hears when it is thawed."""
        context = copy_context()
        context.run(PROCESS.set, process.id)
        the_loop().call_soon(process.stop.set, context=context)

    def kill(self, process: Process) -> None:
        process.killed = True
        the_loop().freeze(process.id)

    async def freeze(self, process: Process, seconds: float) -> None:
        the_loop().freeze(process.id)
        await anyio.sleep(seconds)
        if not process.killed:
            the_loop().thaw(process.id)

    def remove_leases(self) -> None:
        """As an operator might, in the store."""
        self.leases._leases.clear()

    def owners(self, scope: str) -> list[str]:
        """The names of those that are alive and believe that they follow the scope."""
        alive = [each for each in self.processes if not each.killed]
        return [each.name for each in alive if each.follows(scope)]

    async def epoch(self, scope: str) -> int:
        """Of the scope's lease: it grows when the scope moves."""
        return (await self.leases.read()).leases[scope].epoch

    def check(self, scope: str) -> None:
        """Of any course: no two save or hand over; nothing is missing, and the order holds."""
        assert self.unopened == []
        saved = [each for each in self.saved if each.scope == scope]
        owners = {each.epoch: each.process for each in saved}
        assert all(owners[each.epoch] == each.process for each in saved), saved
        assert [each.epoch for each in saved] == sorted(each.epoch for each in saved)
        handed = [each for each in self.handed_over if each.scope == scope]
        epochs = [each.epoch for each in handed]
        assert epochs == sorted(epochs), f"an earlier owner handed over later: {handed}"
        assert all(owners[each.epoch] == each.process for each in handed)
        seen, last = 0, dict[int, int]()  # the sources begin at event 1
        for each in handed:
            before = last.get(each.epoch)
            assert each.event == before + 1 if before is not None else each.event <= seen + 1, each
            last[each.epoch], seen = each.event, max(seen, each.event)

    def check_once(self, *scopes: str) -> None:
        """A clean stop and a hand-over repeat nothing."""
        for scope in scopes:
            events = [each.event for each in self.handed_over if each.scope == scope]
            assert events == sorted(set(events)), scope


@asynccontextmanager
async def cluster_of(*scopes: str, ttl: float = TTL) -> AsyncIterator[Cluster]:
    """Runs the sources beside the block; then everything ends, as it is, and is checked."""
    cluster = Cluster(*scopes, ttl=ttl)
    async with anyio.create_task_group() as cluster.tasks:
        cluster.tasks.start_soon(cluster.write)
        yield cluster
        for process in cluster.processes:
            the_loop().thaw(process.id)
        cluster.tasks.cancel_scope.cancel()
    for scope in scopes:
        cluster.check(scope)


async def until_follows(cluster: Cluster, scope: str, *processes: Process) -> Process:
    """Waits until one of them follows the scope; returns it."""
    await until(lambda: any(each.follows(scope) for each in processes))
    (one,) = (each for each in processes if each.follows(scope))
    return one


async def two(cluster: Cluster) -> tuple[Process, Process]:
    """Starts two; returns the one that follows ``orders``, and the other, a lease later."""
    one, other = cluster.start("one"), cluster.start("other")
    owner = await until_follows(cluster, "orders", one, other)
    (rest,) = {one, other} - {owner}
    await anyio.sleep(TTL)
    return owner, rest


async def seconds_left(cluster: Cluster) -> float:
    return (await cluster.leases.read()).leases["orders"].seconds_left


async def until_renewed(cluster: Cluster) -> None:
    while await seconds_left(cluster) < TTL - 0.1:  # noqa: ASYNC110 - no event tells it
        await anyio.sleep(0.01)
