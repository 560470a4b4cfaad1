"""Destinations that outlive the service: with a position of their own, or without."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from tailrace.engine import Commit, Routed, RunIdentity
from tailrace.errors import PermanentError, Refused, Unavailable
from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken, SinkPosition
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.model.gap import Gap
from tests.handlers import handler
from tests.unit.engine.changes import Document, change

WAITS = FailurePolicy(attempts=3, backoff=Backoff(3600, 3600))
"""After a failed attempt, the next one does not come before the run ends."""


def key(event: ChangeEvent) -> int:
    """The event's number, from a field of its own: events of a transaction share their time."""
    return int(event.document["n"])


class Destination:
    """Common to both: events that fail once (``failing``) or always (``poison``)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failing: Counter[int] = Counter()
        self.poison: set[int] = set()
        self.down = 0
        """How often it does not answer when it is asked for its position."""
        self.pauses = 0

    async def attempt(self, events: Sequence[ChangeEvent]) -> list[int]:
        for _ in range(self.pauses):
            await anyio.lowlevel.checkpoint()
        numbers = [key(event) for event in events]
        for n in numbers:
            if n in self.poison:
                raise PermanentError(f"event {n}")
            if self.failing[n]:
                self.failing[n] -= 1
                raise RuntimeError(f"event {n}")
        return numbers


class Table(Destination):
    """Rows and the token of the last row, stored in one transaction."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.rows: list[int] = []
        self.token: ResumeToken | None = None
        self.gaps: list[Gap] = []
        self.lost = 0
        """Calls whose answers are lost, after they stored everything."""
        self._taken: list[ChangeEvent] = []

    async def skipped(self, owner: RunIdentity, gap: Gap) -> None:
        self.gaps.append(gap)

    async def position(self, owner: RunIdentity) -> SinkPosition | None:
        self._taken = []
        if self.down:
            self.down -= 1
            raise Unavailable(retry_after=0)
        return SinkPosition(self.token) if self.token is not None else None

    async def store(self, events: Sequence[ChangeEvent]) -> None:
        numbers = await self.attempt(events)
        self.rows += numbers
        self.token = events[-1].token
        for _ in range(self.pauses):
            await anyio.lowlevel.checkpoint()
        if self.lost:
            self.lost -= 1
            raise OSError("the answer was lost")

    async def take(self, events: Any) -> None:
        self._taken += events

    async def commit(self, identity: RunIdentity) -> None:
        await self.store(self._taken)
        self._taken = []

    def backup(self) -> Callable[[], None]:
        """Returns a function that restores the current state, unless that has no position."""
        rows, token = list(self.rows), self.token

        def restore() -> None:
            if token is not None:
                self.rows, self.token = list(rows), token

        return restore

    def routed(
        self, batch_size: int, wants: Any = None, *, commits: bool = False, **fields: Any
    ) -> Routed:
        fields |= {"batch_size": batch_size, "position": self.position, "skipped": self.skipped}
        if not commits:
            fields = {"failure": WAITS} | fields
            return Routed(handler(self.name, on_events=self.store, **fields), wants)
        commit = Commit(self.commit, batch_size, 10**6, 0.0, held=lambda identity: len(self._taken))
        return Routed(handler(self.name, on_events=self.take, commit=commit, **fields), wants)


class Plain(Destination):
    """The events handed over, with repetitions."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.handled: list[int] = []

    async def on_event(self, event: ChangeEvent) -> None:
        self.handled += await self.attempt([event])

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        self.handled += await self.attempt(events)

    def routed(self, concurrency: int = 8, **fields: Any) -> Routed:
        return Routed(
            handler(self.name, self.on_event, concurrency=concurrency, failure=WAITS, **fields)
        )

    def routed_by_batch(self, batch_size: int, **fields: Any) -> Routed:
        return Routed(
            handler(
                self.name,
                on_events=self.on_events,
                batch_size=batch_size,
                failure=WAITS,
                **fields,
            )
        )


class Collecting(Plain):
    """Accepts events, and handles all of them at each commit."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.accepted: list[int] = []
        self.commits: list[list[int]] = []
        self.refused: set[int] = set()
        self.ddl: list[int] = []
        self.failing_commits = 0

    async def take(self, events: Sequence[ChangeEvent]) -> None:
        numbers = await self.attempt(events)
        if refused := {at: "no" for at, n in enumerate(numbers) if n in self.refused}:
            raise Refused(refused)
        self.accepted += numbers

    async def commit(self, identity: RunIdentity) -> None:
        accepted, self.accepted = self.accepted, []
        await anyio.lowlevel.checkpoint()
        if self.failing_commits:
            self.failing_commits -= 1
            raise RuntimeError("the bucket is gone")
        self.commits.append(accepted)
        self.handled += accepted

    async def on_ddl(self, event: ChangeEvent, identity: RunIdentity) -> None:
        assert self.accepted == []
        self.ddl.append(key(event))

    def routed_to_commit(self, batch_size: int, events: int = 10**6, **fields: Any) -> Routed:
        commit = Commit(self.commit, events, 10**9, fields.pop("seconds", 3600.0))
        fields = {"failure": WAITS, "on_ddl": self.on_ddl, "batch_size": batch_size} | fields
        return Routed(handler(self.name, on_events=self.take, commit=commit, **fields))


def event(n: int, key: int | None = None) -> Document:
    return change(n, key) | {"n": n}


def oplog(count: int) -> list[Document]:
    return [event(n) for n in range(1, count + 1)]
