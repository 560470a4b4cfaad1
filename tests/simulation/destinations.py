"""Destinations, which outlive every process, and the handlers by which a process reaches them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import structlog

from tailrace.engine import Commit, Handler, OwnPosition, PerBatch, PerEvent, RunIdentity
from tailrace.errors import Fenced, PermanentError, Refused, Unavailable
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition, StartPoint
from tailrace.model.failure_policy import FailurePolicy
from tailrace.model.sink_position import NO_TOKEN
from tailrace.model.start import NOW
from tests.simulation.expected import Expected, Violation
from tests.simulation.faults import Failing, Faults, Gate
from tests.simulation.ledger import Ledger, Reasons
from tests.simulation.shown_events import canonical


class Kind(StrEnum):
    """How a handler is called, and what its destination stores."""

    EVENTS = "events"
    BATCHES = "batches"
    BY_KEY = "batches by key"
    TABLE = "table"
    """Batches, with a position of its own."""
    COMMITTING = "committing"
    COMMITTING_TABLE = "committing table"


ONCE = frozenset({Kind.TABLE, Kind.COMMITTING_TABLE})
COMMITS = frozenset({Kind.COMMITTING, Kind.COMMITTING_TABLE})


@dataclass(frozen=True, slots=True)
class Shape:
    """How a handler is configured."""

    kind: Kind
    size: int
    """The most events a call, or the most calls at once."""
    failure: FailurePolicy
    commit_events: int = 20
    commit_seconds: float = 1.0
    poison: float = 0.0
    """The share of events that the destination refuses for good."""
    soft_errors: float = 0.0
    """The share of failures that are no outage: so many attempts become a dead letter."""
    fences: bool = False
    """Whether a destination without a position refuses calls of processes with an older epoch."""
    on_ddl: bool = True
    """Of one that commits to a table: whether it is called apart for DDL, as classes are; it stores
    nothing of that. Without it, as ``parquet``, it compares no position when it stores."""
    begins_apart: bool = False
    start: StartPoint = NOW
    snapshot: bool = False
    """If it begins apart: where, and whether with a snapshot."""


class Destination:
    """One handler's destination. Everything that it takes goes to its :class:`Ledger`."""

    def __init__(
        self, name: str, shape: Shape, faults: Faults, expected: Expected, reasons: Reasons
    ) -> None:
        self.name = name
        self.shape = shape
        self.faults = faults
        self.ledger = Ledger(name, expected, reasons, once=shape.kind in ONCE)
        self.violations: list[Violation] = []
        self._log = structlog.get_logger().bind(scope=expected.scope.name, handler=name)
        self.claimed = 0
        """The epoch that has claimed the scope: what older ones answer is not saved any more."""
        self._epoch = 0
        """The greatest epoch that has reached it."""
        self._expected = expected
        self.position: SinkPosition | None = None
        self._restorations = 0
        self._poison = random.Random(f"poison {name} {faults.random.random()}")
        self._refused: dict[str, bool] = {}

    def starts_now(self, of_scope: StartPoint) -> bool:
        """Whether it begins with what happens after its first position."""
        return (self.shape.start if self.shape.begins_apart else of_scope) == NOW

    @property
    def compares(self) -> bool:
        """Whether it notices by its position that it was restored."""
        kind = self.shape.kind
        return kind is Kind.TABLE or (kind is Kind.COMMITTING_TABLE and self.shape.on_ddl)

    def handler(self, gate: Gate) -> Handler:
        """The handler of one process."""
        return _Connection(self, gate).handler()

    # --- what a connection does -----------------------------------------------------------------

    async def store(
        self, events: Sequence[ChangeEvent], gate: Gate, epoch: int, former: SinkPosition | None
    ) -> SinkPosition | None:
        """Takes the events, all or none; returns the position after them. ``former``: the one that
        the process knows."""
        await self.reach(gate)
        if self._is_current(epoch):
            if self.compares and former is not self.position:
                self.faults.count("call of a process that does not know its position")
                raise Fenced("the last call did not leave this position")
            self.checked(lambda: self.ledger.apply(events))
            self._log.debug("simulation.applied", changes=self.ledger.named(events), epoch=epoch)
            if self.shape.kind in ONCE:
                self.position = SinkPosition.after(events, self.position)
        position = self.position
        await self.reply(gate)
        # docs/delivery.md: "A clean stop repeats no handled change." One by force may: what it is
        # answered while it ends comes too late for its last save.
        if epoch >= self.claimed and not gate.running.cancel_called:
            self.ledger.answered(events)
            self._log.debug("simulation.answered", changes=self.ledger.named(events))
        return position

    def back_up(self) -> Callable[[], None]:
        """Copies what it holds; returns what restores that.

        A backup from before another one was restored may be later than what it holds now. That
        looks like another process, and halts the handler (docs/handlers.md, ``Fenced``).
        """
        position, restored, before = self.position, self.ledger.back_up(), self._restorations

        def restore() -> None:
            if self._restorations > before:
                return
            self._restorations += 1
            self.position = position
            emptied = position is None or position.token == NO_TOKEN  # or has rows alone
            restored(emptied=emptied)
            self.faults.count("emptied" if emptied else "restored")
            self._log.debug("simulation.restored", position=position)

        return restore

    def _is_current(self, epoch: int) -> bool:
        """Whether the process is the latest that was here. One without a fence lets others write,
        too: nobody can promise anything of that."""
        if epoch >= self._epoch:
            self._epoch = epoch
            return True
        self.faults.count("call of a former process")
        if self.shape.kind in ONCE or self.shape.fences:
            raise Fenced("a later process writes here")
        return False

    async def load(self, gate: Gate, epoch: int) -> SinkPosition | None:
        """The position that it has stored; from now on no older process may write."""
        await self.reach(gate)
        self._is_current(epoch)
        position = self.position
        await self.reply(gate)
        return position

    async def reach(self, gate: Gate) -> None:
        """On the way there; raises what its client raises."""
        gate.require()
        try:
            await self.faults.before()
        except Failing:
            raise self._error() from None
        gate.require()

    async def reply(self, gate: Gate) -> None:
        """On the way back."""
        try:
            await self.faults.after()
        except Failing:
            raise self._error() from None
        gate.require()

    def refuses(self, events: Sequence[ChangeEvent]) -> list[int]:
        """The indices of those that it refuses."""
        refused = [at for at, event in enumerate(events) if self._is_poison(event)]
        for at in refused:
            self.checked(lambda at=at: self.ledger.refuse(events[at]))
        return refused

    def checked(self, call: Any) -> None:
        """Notes a violation instead of raising it: the engine would take it for an error."""
        try:
            call()
        except Violation as violation:
            self.violations.append(violation)
            self._log.error("simulation.violated", error=str(violation))

    def _is_poison(self, event: ChangeEvent) -> bool:
        data = event.id.get("_data")
        token = canonical(data) if data is not None else event.token.digest
        if token not in self._refused:
            self._refused[token] = self._poison.random() < self.shape.poison
        return self._refused[token]

    def _error(self) -> Exception:
        random = self.faults.random
        if random.random() < self.shape.soft_errors:
            return RuntimeError("the destination answered with an error")
        return random.choice([Unavailable("it is down"), ConnectionError("it does not answer")])


class _Connection:
    """What one process knows of a destination: the events that wait for a commit."""

    def __init__(self, destination: Destination, gate: Gate) -> None:
        self._destination = destination
        self._gate = gate
        self._accepted: list[ChangeEvent] = []
        self._epoch = 0
        self._position: SinkPosition | None = None

    def handler(self) -> Handler:
        destination, shape = self._destination, self._destination.shape
        calls: PerEvent | PerBatch
        position = commit = None
        if shape.kind is Kind.EVENTS:
            calls = PerEvent(self._event, shape.size)
        elif shape.kind in COMMITS:
            on_ddl = self._ignore_ddl if destination.compares else None
            calls = PerBatch(self._accept, events=shape.size, on_ddl=on_ddl)
            commit = Commit(
                self._commit,
                shape.commit_events,
                10**6,
                shape.commit_seconds,
                held=lambda identity: sum(each.size for each in self._accepted),
            )
        else:
            at_once = 3 if shape.kind is Kind.BY_KEY else 1
            calls = PerBatch(self._batch, events=shape.size, concurrency=at_once)
        if shape.kind in ONCE:
            position = OwnPosition(self._load, self._skipped)
        return Handler(destination.name, calls, position, commit, shape.failure)

    async def _event(self, event: ChangeEvent, identity: RunIdentity) -> None:
        destination = self._destination
        if destination.refuses([event]):
            raise PermanentError("it refuses this one")
        await self._store([event], identity)

    async def _batch(self, events: Sequence[ChangeEvent], identity: RunIdentity) -> None:
        self._refuse(events)
        await self._store(events, identity)

    async def _store(self, events: Sequence[ChangeEvent], identity: RunIdentity) -> None:
        store = self._destination.store
        self._position = await store(events, self._gate, identity.epoch, self._position)

    def _refuse(self, events: Sequence[ChangeEvent]) -> None:
        if refused := self._destination.refuses(events):
            raise Refused(dict.fromkeys(refused, "it refuses this one"))

    async def _accept(self, events: Sequence[ChangeEvent], identity: RunIdentity) -> None:
        if identity.epoch != self._epoch:  # its object is another one in each term of a lease
            self._epoch, self._accepted = identity.epoch, []
        self._refuse(events)
        await self._destination.faults.delay()
        self._gate.require()
        self._accepted += events

    async def _ignore_ddl(self, event: ChangeEvent, identity: RunIdentity) -> None:
        destination = self._destination
        await destination.faults.delay()
        self._gate.require()
        destination.checked(lambda: destination.ledger.ignore(event))

    async def _commit(self, identity: RunIdentity) -> None:
        accepted, self._accepted = self._accepted, []
        await self._store(accepted, identity)

    async def _load(self, identity: RunIdentity) -> SinkPosition | None:
        self._accepted = []
        self._position = await self._destination.load(self._gate, identity.epoch)
        return self._position

    async def _skipped(self, identity: RunIdentity, gap: Any) -> None:
        await self._destination.faults.delay()
