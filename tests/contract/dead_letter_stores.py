"""The backings that the suite of dead letter stores runs on, and letters to put into them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import bson
from pymongo import AsyncMongoClient

from tailrace.dead_letters.held import Identity
from tailrace.dead_letters.jsonl import JsonlDeadLetters
from tailrace.dead_letters.memory import MemoryDeadLetters
from tailrace.dead_letters.mongodb import MongoDeadLetters
from tailrace.dead_letters.record import How
from tailrace.event import ChangeEvent
from tailrace.event.dead_letter import DeadLetter
from tests.contract.checkpoint_stores import Runner
from tests.unit.engine.changes import change

AT = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)


def letter(n: int = 1, key: Any = None, scope: str = "orders", **fields: Any) -> DeadLetter:
    """The letter of event ``n``, of the document ``key`` (by default a document of its own)."""
    values: dict[str, Any] = {
        "handler": "audit",
        "raw": bson.encode(change(n, key)),
        "error": "ValueError: no such order",
        "attempts": 5,
        "at": AT,
    }
    return DeadLetter(scope=scope, **(values | fields))


def key(value: Any) -> Hashable:
    """The key of the events of the document ``value``."""
    return ChangeEvent.from_document(change(1, value)).key


class Store(Protocol):
    """All that a store of dead letters does."""

    async def add(self, letter: DeadLetter) -> None: ...
    def held(self, scope: str, handler: str) -> Collection[Hashable]: ...
    async def holds(self, scope: str, handler: str, key: Hashable) -> bool: ...
    async def refresh(self) -> None: ...
    async def count(self) -> Mapping[tuple[str, str], int]: ...
    async def letters(
        self, scope: str | None = None, handler: str | None = None
    ) -> list[DeadLetter]: ...
    async def resolve(self, letter: DeadLetter, how: How) -> bool: ...


class Backing(Protocol):
    """Something that outlives a store; every store opened on it sees the same letters."""

    def open(self) -> AbstractAsyncContextManager[Store]: ...


class MemoryBacking:
    def __init__(self) -> None:
        self._letters: dict[Identity, DeadLetter] = {}

    def open(self) -> AbstractAsyncContextManager[Store]:
        return MemoryDeadLetters.open(self._letters)


class JsonlBacking:
    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> AbstractAsyncContextManager[Store]:
        return JsonlDeadLetters.open(self.path)


class MongoBacking:
    def __init__(self, uri: str, collection: str) -> None:
        self._uri = uri
        self.collection = collection

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Store]:
        async with (
            AsyncMongoClient(self._uri) as client,
            MongoDeadLetters.open(Runner(client), collection=self.collection) as store,
        ):
            yield store
