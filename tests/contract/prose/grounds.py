"""Where a prose test runs: one face for the scripted server and mongod."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pymongo

from tailrace.model import Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions
from tests.contract.streams import QUICK, Sent, connected
from tests.mongod import ReplicaSet
from tests.scripted import ScriptedSet


class Ground(Protocol):
    """A server to write to and to break, and the record of what a driver sent to it."""

    scope: Scope
    uri: str
    sent: Sent

    def insert(self, *keys: Any) -> None: ...

    def fail(self, command: str, code: int, labels: Sequence[str] = ()) -> None: ...


class ScriptedGround:
    def __init__(self, server: ScriptedSet) -> None:
        self.server, self.uri = server, server.uri
        self.scope = Scope("orders", "shop", "orders")
        self.sent = Sent()

    def insert(self, *keys: Any) -> None:
        self.server.insert_many("shop.orders", keys)

    def fail(self, command: str, code: int, labels: Sequence[str] = ()) -> None:
        self.server.fail(command, code=code, labels=labels)


class MongodGround:
    def __init__(self, server: ReplicaSet, database: str) -> None:
        self.server, self.uri, self.database = server, server.uri, database
        self.scope = Scope("orders", database, "orders")
        self.sent = Sent()
        with server.client() as client:
            client[database].create_collection("orders")

    def insert(self, *keys: Any) -> None:
        with self.client() as client:
            for key in keys:
                client[self.database].orders.insert_one({"_id": key})

    def fail(self, command: str, code: int, labels: Sequence[str] = ()) -> None:
        self.server.fail(command, errorCode=code, errorLabels=list(labels))

    def client(self) -> pymongo.MongoClient[dict[str, Any]]:
        return self.server.client()


@asynccontextmanager
async def stream_on(
    ground: Ground,
    name: str,
    options: ChangeStreamOptions = QUICK,
    start: StartPoint | None = None,
) -> AsyncIterator[ChangeStream]:
    """An open stream whose commands are noted in the ground's record."""
    async with (
        connected(name, ground.uri, event_listeners=[ground.sent]) as driver,
        ChangeStream(driver, ground.scope, options, start) as stream,
    ):
        yield stream


def started(sent: Sent) -> list[Mapping[str, Any]]:
    """The start option of every aggregate, tokens decoded."""
    names = ("resumeAfter", "startAfter", "startAtOperationTime")
    return [
        {
            name: dict(stage[name]) if isinstance(stage[name], Mapping) else stage[name]
            for name in names
            if name in stage
        }
        for stage in sent.stages
    ]
