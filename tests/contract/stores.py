"""The backings of the store suites, and records to store."""

import dataclasses
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import bson
import pytest
from bson.timestamp import Timestamp
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from tailrace.errors import CheckpointCorrupt, CommandFailed, ConnectionFailed
from tailrace.event import ChangeEvent
from tailrace.model import Checkpoint, Position, PositionKind, ResumeToken
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.gap import Gap
from tailrace.stores import Store, mongodb, sqlite
from tailrace.stores.memory import (
    MemoryCheckpoints,
    MemoryDeadLetters,
    MemoryDesiredStates,
    MemoryVerifications,
)
from tailrace.stores.memory_leases import MemoryLeases
from tests.unit.engine.changes import change

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
TOKEN = ResumeToken.of({"_data": "8265A0B0C000000001"})


def checkpoint(
    scope: str = "orders", epoch: int = 1, sequence: int = 1, **fields: Any
) -> Checkpoint:
    """A checkpoint; ``fields`` are its own, or those of its position."""
    own = {each.name for each in dataclasses.fields(Position)} & fields.keys()
    position = Position(PositionKind.EVENT, TOKEN, TOKEN, Timestamp(1_700_000_000, 3))
    position = dataclasses.replace(position, **{name: fields.pop(name) for name in own})
    found = Checkpoint(scope, position, "5f3a", "c0ffee", epoch, sequence, saved_at=NOW)
    return dataclasses.replace(found, **fields)


def gap(scope: str = "orders", **fields: Any) -> Gap:
    """A gap that differs from the default one only in the given fields."""
    values: dict[str, Any] = {
        "token": TOKEN,
        "since": Timestamp(1_700_000_000, 3),
        "until": Timestamp(1_700_086_400, 1),
        "reason": "Resume of change stream was not possible (code 286 ChangeStreamHistoryLost)",
        "policy": "skip",
        "recorded_at": NOW,
    }
    return Gap(scope=scope, **(values | fields))


def letter(
    n: int = 1, key: Any = None, scope: str = "orders", raw: bytes = b"", **fields: Any
) -> DeadLetter:
    """The letter of event ``n`` of the document ``key`` (by default a document of its own)."""
    event = ChangeEvent.from_raw(raw or bson.encode(change(n, key)))
    values: dict[str, Any] = {
        "handler": "audit",
        "id": event.token.digest,
        "key": event.key,
        "raw": event.raw,
        "error": "ValueError: no such order",
        "attempts": 5,
        "at": NOW,
    }
    return DeadLetter(scope=scope, **(values | fields))


def key(value: Any) -> Hashable:
    """The key of events of the document ``value``."""
    return ChangeEvent.from_document(change(1, value)).key


class Backing(Protocol):
    """Records that outlive a store: every store opened on it sees the same records."""

    def open(self) -> AbstractAsyncContextManager[Store]: ...


class MemoryBacking:
    def __init__(self) -> None:
        self._checkpoints = MemoryCheckpoints()
        self._letters = MemoryDeadLetters()
        self._leases = MemoryLeases()
        self._verifications = MemoryVerifications()
        self._states = MemoryDesiredStates()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Store]:
        yield Store(
            self._checkpoints, self._letters, self._leases, self._states, self._verifications
        )


class SqliteBacking:
    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> AbstractAsyncContextManager[Store]:
        return sqlite.open_store(self._path)


class MongoBacking:
    def __init__(self, uri: str, database: str) -> None:
        self._uri = uri
        self._database = database

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Store]:
        async with (
            AsyncMongoClient(self._uri) as client,
            mongodb.open_store(Runner(client), database=self._database) as store,
        ):
            yield store


class Runner:
    """The driver port of the MongoDB store, over PyMongo's asyncio client."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]]) -> None:
        self._client = client

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await self._client[database].command(dict(command))
        except OperationFailure as error:
            raise CommandFailed(str(error), code=error.code or 0) from error
        except PyMongoError as error:
            raise ConnectionFailed(str(error)) from error


class DeafRunner(Runner):
    """Every write is executed, but once it is ``deaf``, no acknowledgement arrives."""

    deaf = False

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        reply = await super().run(database, command)
        if self.deaf and "update" in command:
            raise ConnectionFailed("connection closed")
        return reply


async def assert_unreadable(store: Store, scope: str, *, where: str, gap: str) -> None:
    """Each way to read the scope's records names the damaged one: ``where``, for gaps ``gap``."""
    for reading, message in (
        (store.checkpoints.load(scope), where),
        (store.checkpoints.list(), where),
        (store.checkpoints.gaps(scope), gap),
    ):
        with pytest.raises(CheckpointCorrupt) as caught:
            await reading
        assert str(caught.value).startswith(message)
