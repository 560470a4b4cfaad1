"""Several processes with their leases, their watchers and one store, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import anyio

from tailrace.engine import Handler, Routed, Supervisor
from tailrace.errors import CheckpointError, LeaseError
from tailrace.event import ChangeEvent
from tailrace.model import Checkpoint, Scope
from tailrace.model.failure_policy import Backoff
from tailrace.model.lease import Lease, Member, Sharing
from tailrace.replicas.leases import Leases
from tailrace.replicas.times import LeaseTimes
from tailrace.replicas.turns import Turns
from tailrace.stores.memory import MemoryCheckpoints
from tailrace.stores.memory_leases import MemoryLeases
from tailrace.stream import Interrupt
from tests.unit.engine.changes import change, number
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import START, Watching
from tests.unit.replicas.simulated_time import PROCESS, the_loop

T = TypeVar("T")

TTL = 10.0


class HandedOver(NamedTuple):
    """An event that a process gave to the handler."""

    at: float
    process: str
    scope: str
    epoch: int
    event: int


class Saved(NamedTuple):
    """A save or a claim that the store took."""

    process: str
    scope: str
    epoch: int


@dataclass
class Trouble:
    """What happens to the next commands of a process on their way to the store, one after another.

    Each is delayed by ``before`` and its answer by ``after``; ``lost``: there is no answer, and
    with ``before`` infinite the command does not arrive either.
    """

    before: float = 0.0
    after: float = 0.0
    lost: bool = False


class Wire:
    """A process's way to the store. A command that was sent arrives, whoever waits for it."""

    def __init__(self) -> None:
        self.troubles: list[Trouble] = []

    async def send(self, call: Callable[[], Awaitable[T]], error: type[Exception]) -> T:
        trouble = self.troubles.pop(0) if self.troubles else Trouble()
        if trouble.before == float("inf"):
            raise error("connection refused")
        token = PROCESS.set("")  # the store is no part of the process, and is not frozen with it
        try:
            arrived = asyncio.ensure_future(self._arrive(call, trouble))
        finally:
            PROCESS.reset(token)
        answer = await asyncio.shield(arrived)
        if trouble.lost:
            raise error("connection closed")
        return answer

    async def _arrive(self, call: Callable[[], Awaitable[T]], trouble: Trouble) -> T:
        await asyncio.sleep(trouble.before)
        try:
            return await call()
        finally:
            await asyncio.sleep(trouble.after)


class RemoteLeases:
    """The shared leases as one process reaches them."""

    def __init__(self, shared: MemoryLeases, wire: Wire) -> None:
        self._shared, self._wire = shared, wire

    async def _send(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._wire.send(call, LeaseError)

    async def prepare(self, scopes: Any) -> None:
        await self._send(lambda: self._shared.prepare(scopes))

    async def read(self) -> Sharing:
        return await self._send(self._shared.read)

    async def acquire(self, seen: Lease, owner: str, epoch: int, seconds: float) -> bool:
        return await self._send(lambda: self._shared.acquire(seen, owner, epoch, seconds))

    async def renew(
        self, owner: str, scopes: Any, seconds: float, heartbeat: Member | None = None
    ) -> int:
        sent = tuple(scopes)
        return await self._send(lambda: self._shared.renew(owner, sent, seconds, heartbeat))

    async def release(self, scope: str, owner: str, epoch: int) -> None:
        await self._send(lambda: self._shared.release(scope, owner, epoch))

    async def ask(self, seen: Lease, member: str) -> None:
        await self._send(lambda: self._shared.ask(seen, member))

    async def leave(self, member: str) -> None:
        await self._send(lambda: self._shared.leave(member))


class RemoteCheckpoints(ScriptedStore):
    """The shared checkpoints as one process reaches them; ``saved`` has what was taken."""

    def __init__(
        self, shared: MemoryCheckpoints, wire: Wire, name: str, taken: list[Saved]
    ) -> None:
        super().__init__()
        self._shared, self._wire, self._name, self._taken = shared, wire, name, taken

    async def _send(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._wire.send(call, CheckpointError)

    async def load(self, scope: str) -> Checkpoint | None:
        return await self._send(lambda: self._shared.load(scope))

    async def save(self, checkpoint: Checkpoint) -> None:
        async def save() -> None:
            await self._shared.save(checkpoint)
            self._taken.append(Saved(self._name, checkpoint.scope, checkpoint.epoch))

        await self._send(save)

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        async def claim() -> Checkpoint:
            claimed = await self._shared.claim(scope, epoch)
            self._taken.append(Saved(self._name, scope, epoch))
            return claimed

        return await self._send(claim)

    async def list(self) -> Sequence[Checkpoint]:
        return await self._send(self._shared.list)


@dataclass(eq=False)
class Process:
    """One that runs until it is stopped; its own clock has an offset of its own."""

    cluster: Cluster
    id: str
    name: str
    offset: float
    max_scopes: int = 0
    handler_seconds: float = 0.05
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
        for scope, driver in cluster.drivers.items():
            watching = Watching(
                driver,
                Routed(Handler("audit", self._handle, takes_scope=True, takes_epoch=True), None),
                store=checkpoints,
                scope=Scope(scope, "shop", scope),
                backoff=Backoff(0.2, 1),
                checkpoint_seconds=1,
                **START,
            )
            self.supervisor.watchers.append(watching.watcher)
            metrics = watching.metrics
        me = Member(self.id, self.name, self.max_scopes)
        turns = Turns(RemoteLeases(cluster.leases, self.wire), me, self.supervisor, TTL / 2)
        clock = lambda: loop.time() + self.offset  # noqa: E731
        self.leases = Leases(turns, checkpoints, metrics, LeaseTimes(TTL), clock)

    async def run(self) -> None:
        PROCESS.set(self.id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.leases.run, self.stop)
            await self.supervisor.run(self.stop)
            tasks.cancel_scope.cancel()
        await self.leases.close()
        self.stopped = True

    async def _handle(self, event: ChangeEvent, scope: str, epoch: int) -> None:
        at = the_loop().time()
        self.cluster.handed_over.append(HandedOver(at, self.id, scope, epoch, number(event)))
        await anyio.sleep(self.handler_seconds)

    def follows(self, scope: str) -> bool:
        found = self.leases.observed(scope)
        return found is not None and found.held


class Cluster:
    """The store, a source per scope that gets an event each second, and the processes."""

    def __init__(self, *scopes: str) -> None:
        self.shift = 0.0
        """Of the store's clock, as after an election."""
        self.leases = MemoryLeases(lambda: the_loop().time() + self.shift)
        self.checkpoints = MemoryCheckpoints()
        self.drivers = {scope: ScriptedDriver(change(0)) for scope in scopes}
        for driver in self.drivers.values():
            driver.await_seconds = 1.0
        self.handed_over: list[HandedOver] = []
        self.saved: list[Saved] = []
        self.processes: list[Process] = []

    async def run(self, script: Callable[[], Awaitable[None]]) -> None:
        """Runs the script beside the sources; then everything ends, as it is."""
        async with anyio.create_task_group() as self.tasks:
            self.tasks.start_soon(self._write)
            await script()
            for process in self.processes:
                the_loop().thaw(process.id)
            self.tasks.cancel_scope.cancel()

    async def _write(self) -> None:
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

    def owners(self, scope: str) -> list[str]:
        """The names of those that are alive and believe that they follow the scope."""
        alive = [each for each in self.processes if not each.killed]
        return [each.name for each in alive if each.follows(scope)]

    async def epoch(self, scope: str) -> int:
        """Of the scope's lease: it grows when the scope moves."""
        return (await self.leases.read()).leases[scope].epoch

    # --- what must be true of any course -------------------------------------------------------

    def check(self, scope: str) -> None:
        """No two processes save or hand over; nothing is missing, and the order holds."""
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
