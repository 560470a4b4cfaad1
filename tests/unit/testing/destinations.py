"""A database in memory, good handlers that write to it, and handlers with typical mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self

import anyio

from tailrace import Batch, ChangeEvent, Fenced, ScopeContext


class Database:
    """What outlives the processes: rows, the ids of applied changes, positions and epochs."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}
        self.log: list[dict[str, Any]] = []
        self.positions: dict[str, str] = {}
        self.epochs: dict[str, int] = {}

    def backup(self) -> Callable[[], None]:
        """Copies what it holds, with its positions; returns what puts the copy back."""
        rows, log, positions = self.rows.copy(), self.log.copy(), self.positions.copy()

        def restore() -> None:
            self.rows, self.log, self.positions = rows, log, positions

        return restore

    def empty(self) -> None:
        self.rows, self.log, self.positions = {}, [], {}

    async def answer(self) -> None:
        """A round trip to the database."""
        await anyio.lowlevel.checkpoint()

    def apply(self, event: ChangeEvent) -> None:
        assert event.document_key is not None
        self.log.append(event.id)
        if event.operation_type == "delete":
            self.rows.pop(event.document_key["_id"], None)
        else:
            assert event.full_document is not None
            self.rows[event.document_key["_id"]] = event.full_document


class Good:
    """Stores data and position in one transaction, and compares the former position there."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def __aenter__(self) -> Self:
        await self.database.answer()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.database.answer()

    async def begin(self, scope: ScopeContext) -> str | None:
        await self.database.answer()
        if self.database.epochs.get(scope.name, 0) > scope.epoch:
            raise Fenced("a later process writes here")
        self.database.epochs[scope.name] = scope.epoch
        return self.database.positions.get(scope.name)

    async def write(self, batch: Batch) -> None:
        await self.database.answer()
        self.store(batch)
        await self.database.answer()

    def store(self, batch: Batch) -> None:
        self.require_former(batch)
        for event in batch:
            self.database.apply(event)
        self.move(batch)

    def require_former(self, batch: Batch) -> None:
        if self.database.positions.get(batch.scope.name) != batch.former:
            raise Fenced("another process has written since")

    def move(self, batch: Batch) -> None:
        assert batch.position is not None
        self.database.positions[batch.scope.name] = batch.position

    async def on_ddl(self, event: ChangeEvent) -> None:
        await self.database.answer()
        if event.operation_type == "drop":
            self.database.rows.clear()


class Committing(Good):
    """Accepts several batches, and stores them in one transaction of its own."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.accepted: list[Batch] = []

    async def write(self, batch: Batch) -> None:
        await self.database.answer()
        self.accepted.append(batch)

    async def commit(self, scope: ScopeContext) -> None:
        await self.database.answer()
        self.require_former(self.accepted[0])
        for event in (event for batch in self.accepted for event in batch):
            self.database.apply(event)
        self.move(self.accepted[-1])
        self.accepted = []
        await self.database.answer()

    async def rollback(self, scope: ScopeContext) -> None:
        self.accepted = []


class NothingRolledBack(Committing):
    """Keeps what it accepted before a failure, although it comes again."""

    async def rollback(self, scope: ScopeContext) -> None:
        pass


class PositionApart(Good):
    """Stores the position in a second transaction."""

    async def write(self, batch: Batch) -> None:
        self.require_former(batch)
        for event in batch:
            self.database.apply(event)
        await self.database.answer()
        self.move(batch)


class PositionFirst(Good):
    """Stores the position before the data."""

    async def write(self, batch: Batch) -> None:
        self.require_former(batch)
        self.move(batch)
        await self.database.answer()
        for event in batch:
            self.database.apply(event)


class NothingCompared(Good):
    """Writes whatever position is stored."""

    def require_former(self, batch: Batch) -> None:
        pass


class EpochOnly(Good):
    """Looks at the epoch at the begin of its transaction, and not at the former position."""

    async def write(self, batch: Batch) -> None:
        if self.database.epochs[batch.scope.name] > batch.scope.epoch:
            raise Fenced("a later process writes here")
        await self.database.answer()
        self.store(batch)

    def require_former(self, batch: Batch) -> None:
        pass


class Unordered(Good):
    """Writes the events of a batch at once, with gather."""

    async def write(self, batch: Batch) -> None:
        self.require_former(batch)
        await asyncio.gather(*(self.one(event, n) for n, event in enumerate(batch)))
        self.move(batch)

    async def one(self, event: ChangeEvent, number: int) -> None:
        for _ in range(5 - number % 5):
            await self.database.answer()
        self.database.apply(event)


class DeletesIgnored(Good):
    """Only inserts and updates."""

    def store(self, batch: Batch) -> None:
        self.require_former(batch)
        for event in batch:
            if event.operation_type != "delete":
                self.database.apply(event)
        self.move(batch)


class ErrorsSwallowed(Good):
    """Logs its errors, and goes on."""

    async def write(self, batch: Batch) -> None:
        try:
            await super().write(batch)
        except ConnectionError:
            batch.scope.log.warning("ignored")


class Buffering(Good):
    """Returns before the data is stored."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.buffer: list[ChangeEvent] = []

    async def begin(self, scope: ScopeContext) -> str | None:
        self.buffer = []
        return await super().begin(scope)

    def store(self, batch: Batch) -> None:
        self.require_former(batch)
        for event in self.buffer:
            self.database.apply(event)
        self.buffer = list(batch)[-1:]
        for event in list(batch)[:-1]:
            self.database.apply(event)
        self.move(batch)


def of_events(database: Database) -> Any:
    """A function of single events."""

    async def apply(event: ChangeEvent) -> None:
        await database.answer()
        if event.document_key is not None:
            database.apply(event)

    return apply


def of_batches(database: Database) -> Any:
    """A function of batches, which applies them event by event."""

    async def apply(events: Sequence[ChangeEvent]) -> None:
        for event in events:
            await database.answer()
            if event.document_key is not None:
                database.apply(event)

    return apply


def at_once(database: Database) -> Any:
    """A function of batches, which applies their events at once."""

    async def one(event: ChangeEvent, number: int) -> None:
        for _ in range(5 - number % 5):
            await database.answer()
        if event.document_key is not None:
            database.apply(event)

    async def apply(events: Sequence[ChangeEvent]) -> None:
        await asyncio.gather(*(one(event, n) for n, event in enumerate(events)))

    return apply


def forgetful(database: Database) -> Any:
    """A function that returns although it failed."""

    async def apply(events: Sequence[ChangeEvent]) -> None:
        try:
            await of_batches(database)(events)
        except RuntimeError:
            return

    return apply
