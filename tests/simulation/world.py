"""What outlives every process: the server, the stores, and the destinations of each scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from tailrace.engine import Routed, ScopePlan
from tailrace.event import ChangeEvent
from tailrace.model import Checkpoint, Scope, StartPoint
from tailrace.model.checkpoint import replay_to
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.failure_policy import Backoff
from tailrace.model.gap import Gap
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.snapshots import Snapshots
from tailrace.stores.memory import MemoryCheckpoints, MemoryDeadLetters, MemoryDesiredStates
from tailrace.stores.memory_leases import MemoryLeases
from tailrace.stream import ChangeStreamOptions
from tailrace.testing.oplog import START, Oplog
from tests.simulation.destinations import Destination, Shape
from tests.simulation.expected import Expected
from tests.simulation.faults import Faults, Gate
from tests.simulation.ledger import Reasons
from tests.simulation.source import Server, SimulatedSnapshotServer

BEGINNING = StartPoint(at_operation_time=START)


@dataclass(frozen=True, slots=True)
class ScopeShape:
    """How a scope is configured; ``after_gap``: a snapshot is taken if its history is lost."""

    scope: Scope
    options: ChangeStreamOptions
    shapes: Sequence[Shape]
    lanes: int = 64
    checkpoint_seconds: float = 1.0
    start: StartPoint = BEGINNING
    snapshot: bool = False
    skip_lost_history: bool = False
    after_gap: bool = False
    catch_up_streams: int = 2
    stop_on_invalidate: bool = False


@dataclass(eq=False)
class SimulatedScope:
    """A scope, its destinations as they are configured now, and those that were ``removed``."""

    shape: ScopeShape
    expected: Expected
    destinations: list[Destination]
    removed: list[Destination] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The scope's name."""
        return self.shape.scope.name

    @property
    def names(self) -> set[str]:
        """Of the handlers that are configured now."""
        return {each.name for each in self.destinations}

    @property
    def all(self) -> list[Destination]:
        """Also those that are not configured now."""
        return [*self.destinations, *self.removed]

    def find(self, handler: str) -> Destination:
        """The destination of a handler, configured or not."""
        return next(each for each in self.all if each.name == handler)

    def plan(self, server: Server, gate: Gate) -> ScopePlan:
        """How one process follows it."""
        shape = self.shape
        return ScopePlan(
            shape.scope,
            shape.options,
            [self._routed(each, server, gate) for each in self.destinations],
            Backoff(0.5, 5.0),
            start=shape.start,
            skip_lost_history=shape.skip_lost_history,
            lanes=shape.lanes,
            checkpoint_seconds=shape.checkpoint_seconds,
            rows=self._rows(server, gate, initial=shape.snapshot),
            catch_up_streams=shape.catch_up_streams,
            stop_on_invalidate=shape.stop_on_invalidate,
        )

    def _routed(self, of: Destination, server: Server, gate: Gate) -> Routed:
        apart = of.shape.begins_apart
        start = of.shape.start if apart else self.shape.start
        initial = of.shape.snapshot if apart else self.shape.snapshot
        rows = partial(self._rows, server, gate, initial=initial)
        return Routed(of.handler(gate), None, start, rows, begins_apart=apart)

    def _rows(self, server: Server, gate: Gate, *, initial: bool) -> Snapshots:
        options = SnapshotOptions(
            initial=initial, after_gap=self.shape.after_gap, chunk_documents=2
        )
        return Snapshots(self.shape.scope, SimulatedSnapshotServer(server, gate), options)


@dataclass(eq=False)
class World:
    """``lease_faults``: of the leases alone; ``None`` for processes without leases."""

    oplog: Oplog
    server: Server
    store_faults: Faults
    lease_faults: Faults | None
    scopes: Sequence[SimulatedScope]
    reasons: Reasons
    clock: Callable[[], float]
    budget: int
    checkpoints: MemoryCheckpoints = field(init=False)
    letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)
    desired_states: MemoryDesiredStates = field(default_factory=MemoryDesiredStates)
    leases: MemoryLeases = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoints = _NotedCheckpoints(self)
        self.leases = MemoryLeases(self.clock)

    def find(self, scope: str) -> SimulatedScope:
        """The scope with this name."""
        return next(each for each in self.scopes if each.name == scope)

    @property
    def destinations(self) -> list[Destination]:
        """Of all scopes, configured or not."""
        return [each for scope in self.scopes for each in scope.all]

    @property
    def faults(self) -> list[Faults]:
        """Those of all parts."""
        leases = [] if self.lease_faults is None else [self.lease_faults]
        of_destinations = [each.faults for each in self.destinations]
        return [self.server.faults, self.store_faults, *leases, *of_destinations]


class _NotedCheckpoints(MemoryCheckpoints):
    """The checkpoints and gaps. The ledgers hear where handlers begin, of gaps, of moves by an
    operator's order, and which epoch may store something."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def save(self, checkpoint: Checkpoint) -> None:
        before = await self.load(checkpoint.scope)
        await super().save(checkpoint)
        self._note_epoch(checkpoint)
        of = self._world.find(checkpoint.scope)
        for each in of.all:
            again = checkpoint.replays.get(replay_to(each.name))
            if again is not None and again.replay is not None:
                done, failed = again.replay, again.halted != ""
                each.checked(partial(each.ledger.replayed, done, failed=failed))
            now = checkpoint.of(each.name)
            was = before.of(each.name) if before is not None else None
            if now is None:
                continue
            if was is None and each.starts_now(of.shape.start):
                each.ledger.begin(now.position.cluster_time)
            observed = was.observed_generation if was is not None else 0
            if now.position.chosen and now.observed_generation > observed:
                self._world.reasons.note("a seek")
                each.ledger.moved(now.position.cluster_time or START)

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        claimed = await super().claim(scope, epoch)
        self._note_epoch(claimed)
        return claimed

    async def record_gap(self, gap: Gap) -> None:
        await super().record_gap(gap)
        until = gap.until or self._world.oplog.now
        for each in self._world.find(gap.scope).all:
            if gap.concerns(each.name):
                each.ledger.skip(gap.since, until)

    def _note_epoch(self, checkpoint: Checkpoint) -> None:
        for each in self._world.find(checkpoint.scope).all:
            each.claimed = max(each.claimed, checkpoint.epoch)


class NotedLetters:
    """The dead letters, of which the ledgers hear."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.letters, name)

    async def add(self, letter: DeadLetter, epoch: int) -> None:
        await self._world.letters.add(letter, epoch)
        of = self._world.find(letter.scope).find(letter.handler)
        of.checked(lambda: of.ledger.set_aside(ChangeEvent.from_raw(letter.raw)))


async def until(time: float) -> None:
    """Returns at a virtual time."""
    await anyio.sleep(max(time - anyio.current_time(), 0))
