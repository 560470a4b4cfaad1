"""Destinations, which outlive every process, and the handlers by which a process reaches them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import structlog

from tailrace.engine import Commit, Handler, OwnPosition, PerBatch, PerEvent, RunIdentity
from tailrace.errors import PermanentError, Refused, Unavailable
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition
from tailrace.model.failure_policy import FailurePolicy
from tests.simulation.faults import Failing, Faults, Gate
from tests.simulation.ledger import Expected, Ledger, Reasons, Violation


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
        self._log = structlog.get_logger().bind(handler=name)
        self.calls = 0
        self._expected = expected
        self._position: SinkPosition | None = None
        self._poison = random.Random(f"poison {name} {faults.random.random()}")
        self._refused: dict[int, bool] = {}

    def handler(self, gate: Gate) -> Handler:
        """The handler of one process."""
        return _Connection(self, gate).handler()

    # --- what a connection does -----------------------------------------------------------------

    async def store(self, events: Sequence[ChangeEvent], gate: Gate) -> None:
        """Takes the events, all or none."""
        self.calls += 1
        await self.reach(gate)
        numbers = self.numbers(events)
        self.take(events, numbers)
        self._log.debug("simulation.applied", changes=numbers)
        await self.reply(gate)
        self.ledger.answered(numbers)
        self._log.debug("simulation.answered", changes=numbers)

    def take(self, events: Sequence[ChangeEvent], numbers: Sequence[int]) -> None:
        """Stores the events, with the position if it stores one."""
        self.checked(lambda: self.ledger.apply(numbers))
        if self.shape.kind in ONCE and events:
            last = events[-1]
            self._position = SinkPosition(last.token, last.cluster_time)

    async def load(self, gate: Gate) -> SinkPosition | None:
        """The position that it has stored."""
        await self.reach(gate)
        position = self._position
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

    def numbers(self, events: Sequence[ChangeEvent]) -> list[int]:
        """The changes; a foreign one is noted as a violation."""
        found: list[int] = []
        self.checked(lambda: found.extend(self._expected.number(event) for event in events))
        return found

    def refuses(self, numbers: Sequence[int]) -> list[int]:
        """The indices of those that it refuses."""
        found = [at for at, number in enumerate(numbers) if self._is_poison(number)]
        for at in found:
            self.ledger.refuse(numbers[at])
        return found

    def checked(self, call: Any) -> None:
        """Notes a violation instead of raising it: the engine would take it for an error."""
        try:
            call()
        except Violation as violation:
            self.violations.append(violation)
            self._log.error("simulation.violated", error=str(violation))

    def _is_poison(self, number: int) -> bool:
        if number not in self._refused:
            self._refused[number] = self._poison.random() < self.shape.poison
        return self._refused[number]

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

    def handler(self) -> Handler:
        destination, shape = self._destination, self._destination.shape
        calls: PerEvent | PerBatch
        position = commit = None
        if shape.kind is Kind.EVENTS:
            calls = PerEvent(self._event, shape.size)
        elif shape.kind in COMMITS:
            calls = PerBatch(self._accept, events=shape.size)
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
        if destination.refuses(destination.numbers([event])):
            raise PermanentError("it refuses this one")
        await destination.store([event], self._gate)

    async def _batch(self, events: Sequence[ChangeEvent], identity: RunIdentity) -> None:
        self._refuse(events)
        await self._destination.store(events, self._gate)

    def _refuse(self, events: Sequence[ChangeEvent]) -> None:
        destination = self._destination
        if refused := destination.refuses(destination.numbers(events)):
            raise Refused(dict.fromkeys(refused, "it refuses this one"))

    async def _accept(self, events: Sequence[ChangeEvent], identity: RunIdentity) -> None:
        self._refuse(events)
        await self._destination.faults.delay()
        self._gate.require()
        self._accepted += events

    async def _commit(self, identity: RunIdentity) -> None:
        accepted, self._accepted = self._accepted, []
        await self._destination.store(accepted, self._gate)

    async def _load(self, identity: RunIdentity) -> SinkPosition | None:
        self._accepted = []
        return await self._destination.load(self._gate)

    async def _skipped(self, identity: RunIdentity, gap: Any) -> None:
        await self._destination.faults.delay()
