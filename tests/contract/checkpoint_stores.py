"""The backings that the suite of checkpoint stores runs on, and records to put into them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from bson.timestamp import Timestamp
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from tailrace.checkpoints.memory import MemoryStore
from tailrace.checkpoints.mongodb import MongoStore
from tailrace.checkpoints.sqlite import SqliteStore
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CommandFailed, ConnectionFailed
from tailrace.model import Checkpoint, CheckpointKind, ResumeToken
from tailrace.model.gap import Gap

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
TOKEN = ResumeToken.of({"_data": "8265A0B0C000000001"})


def checkpoint(
    scope: str = "orders", epoch: int = 1, sequence: int = 1, **fields: Any
) -> Checkpoint:
    """A checkpoint that differs from the default one in the given fields only."""
    values: dict[str, Any] = {
        "kind": CheckpointKind.EVENT,
        "event_token": TOKEN,
        "high_water": TOKEN,
        "cluster_time": Timestamp(1_700_000_000, 3),
        "cluster": "5f3a",
        "fingerprint": "c0ffee",
        "saved_at": NOW,
    }
    return Checkpoint(scope=scope, epoch=epoch, sequence=sequence, **(values | fields))


def gap(scope: str = "orders", **fields: Any) -> Gap:
    """A gap that differs from the default one in the given fields only."""
    values: dict[str, Any] = {
        "token": TOKEN,
        "since": Timestamp(1_700_000_000, 3),
        "until": Timestamp(1_700_086_400, 1),
        "reason": "Resume of change stream was not possible (code 286 ChangeStreamHistoryLost)",
        "policy": "skip",
        "recorded_at": NOW,
    }
    return Gap(scope=scope, **(values | fields))


class Backing(Protocol):
    """Something that outlives a store; every store opened on it sees the same records."""

    def open(self) -> AbstractAsyncContextManager[CheckpointStore]: ...


class MemoryBacking:
    def __init__(self) -> None:
        self._records: dict[str, Checkpoint] = {}
        self._gaps: set[Gap] = set()

    def open(self) -> AbstractAsyncContextManager[CheckpointStore]:
        return MemoryStore.open(self._records, self._gaps)


class SqliteBacking:
    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> AbstractAsyncContextManager[CheckpointStore]:
        return SqliteStore.open(self.path)


class MongoBacking:
    def __init__(self, uri: str, collection: str) -> None:
        self._uri = uri
        self.collection = collection

    @asynccontextmanager
    async def open(self) -> AsyncIterator[CheckpointStore]:
        async with (
            AsyncMongoClient(self._uri) as client,
            MongoStore.open(Runner(client), collection=self.collection) as store,
        ):
            yield store


class Runner:
    """The driver seam of :class:`MongoStore` over PyMongo's asyncio client."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]]) -> None:
        self._client = client

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await self._client[database].command(dict(command))
        except OperationFailure as error:
            raise CommandFailed(str(error), code=error.code or 0) from error
        except PyMongoError as error:
            raise ConnectionFailed(str(error)) from error
