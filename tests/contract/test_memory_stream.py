"""The stream in memory acts like mongod: the same events, positions and ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import bson
import pytest
from pymongo import MongoClient

from tailrace.drivers import DRIVERS
from tailrace.errors import CommandFailed
from tailrace.event import ChangeEvent
from tailrace.model import Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions, Driver
from tailrace.testing import Changes
from tailrace.testing.stream import MemoryDriver
from tests.mongod import ReplicaSet

OPTIONS = ChangeStreamOptions(
    full_document="whenAvailable",
    full_document_before_change="whenAvailable",
    max_await_time_ms=200,
)


class InMemory(Changes):
    """Writes to ``orders`` in memory."""

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.database = database

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[Driver]:
        yield MemoryDriver(self.oplog)


class OnMongod:
    """Writes to ``orders`` on a server."""

    def __init__(self, client: MongoClient[dict[str, Any]], database: str, uri: str) -> None:
        self.database, self._client, self._uri = database, client, uri
        self._orders = client[database].orders
        self._session: Any = None

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[Driver]:
        async with DRIVERS["pymongo"](self._uri, 1) as driver:
            yield driver

    def insert(self, document: dict[str, Any]) -> None:
        if self._orders.name not in self._client[self.database].list_collection_names():
            images = {"enabled": True}
            self._client[self.database].create_collection(
                "orders", changeStreamPreAndPostImages=images
            )
        self._orders.insert_one(document, session=self._session)

    def update(self, id: Any, fields: dict[str, Any]) -> None:
        self._orders.update_one({"_id": id}, {"$set": fields}, session=self._session)

    def replace(self, document: dict[str, Any]) -> None:
        self._orders.replace_one({"_id": document["_id"]}, document, session=self._session)

    def delete(self, id: Any) -> None:
        self._orders.delete_one({"_id": id}, session=self._session)

    def drop(self) -> None:
        self._orders.drop()

    def rename(self, collection: str) -> None:
        self._orders.rename(collection)

    def drop_database(self) -> None:
        self._client.drop_database(self.database)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._client.start_session() as session, session.start_transaction():
            self._session = session
            yield
            self._session = None


Source = InMemory | OnMongod


@pytest.fixture(params=["memory", "mongod"])
def source(request: pytest.FixtureRequest, database: str) -> Iterator[Source]:
    if request.param == "memory":
        yield InMemory(database)
        return
    server: ReplicaSet = request.getfixturevalue("mongod")
    with server.client() as client:
        yield OnMongod(client, database, server.uri)
        client.drop_database(database)


async def events_of(
    source: Source, write: Callable[[Source], Any], scope: Scope, options: Any = OPTIONS
) -> list[ChangeEvent]:
    """What a stream returns of these writes, until it is empty or invalidated."""
    async with source.driver() as driver, ChangeStream(driver, scope, options) as stream:
        await stream.next_batch()
        write(source)
        return await rest(stream)


async def rest(stream: ChangeStream) -> list[ChangeEvent]:
    events: list[ChangeEvent] = []
    while not stream.invalidated:
        batch = await stream.next_batch()
        if not len(batch) and events:
            break
        events += batch.events()
    return events


def shape(event: ChangeEvent) -> list[tuple[str, Any]]:
    """The fields in their order. Of those that differ between two runs, only the types."""
    differ = ("_id", "clusterTime", "wallTime", "txnNumber", "collectionUUID")
    return [
        (name, type(value) if name in differ else list(value) if name == "lsid" else value)
        for name, value in bson.decode(event.raw).items()
    ]


def of_documents(source: Source) -> None:
    source.insert({"_id": 1, "a": 1, "b": {"c": 1}})
    source.update(1, {"a": 2, "b.c": 3})
    source.replace({"_id": 1, "x": b"x"})
    source.delete(1)
    with source.transaction():
        source.insert({"_id": 2})
        source.update(2, {"a": 1})


def of_ddl(source: Source) -> None:
    source.insert({"_id": 1})
    source.rename("archive")
    source.drop_database()


@pytest.mark.parametrize("write", [of_documents, of_ddl])
@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize("followed", ["collection", "database"])
async def test_its_events_are_laid_out_as_mongod_lays_them_out(
    mongod: ReplicaSet, database: str, write: Any, expanded: bool, followed: str
) -> None:
    scope = Scope("orders", database, "orders" if followed == "collection" else None)
    options = ChangeStreamOptions(
        full_document="whenAvailable",
        full_document_before_change="whenAvailable",
        show_expanded_events=expanded or None,
        max_await_time_ms=200,
    )
    with mongod.client() as client:
        server = OnMongod(client, database, mongod.uri)
        server.insert({"_id": 0})  # so that neither creates the collection while it is followed
        theirs = await events_of(server, write, scope, options)
    memory = InMemory(database)
    memory.insert({"_id": 0})
    ours = await events_of(memory, write, scope, options)
    assert list(map(shape, ours)) == [
        shape(each) for each in theirs if each.operation_type != "create"
    ]
    assert len(ours) > 2


@pytest.mark.parametrize("ends", ["drop", "rename", "drop_database"])
async def test_a_stream_of_a_collection_ends_with_an_invalidate_and_continues_only_by_start_after(
    source: Source, ends: str
) -> None:
    scope = Scope("orders", source.database, "orders")
    source.insert({"_id": 0})

    def write(source: Source) -> None:
        source.insert({"_id": 1})
        source.rename("archive") if ends == "rename" else getattr(source, ends)()
        source.insert({"_id": 2})

    events = await events_of(source, write, scope)
    *_, last, invalidate = events
    assert (events[0].operation_type, invalidate.operation_type) == ("insert", "invalidate")
    async with source.driver() as driver:
        token = invalidate.token
        async with ChangeStream(driver, scope, OPTIONS, StartPoint(start_after=token)) as after:
            assert (await rest(after))[-1].document_key == {"_id": 2}
        start = StartPoint(resume_after=last.token)
        async with ChangeStream(driver, scope, OPTIONS, start) as again:
            assert [each.operation_type for each in await rest(again)] == ["invalidate"]
        with pytest.raises(CommandFailed) as refused:
            async with ChangeStream(driver, scope, OPTIONS, StartPoint(resume_after=token)):
                pass
        assert refused.value.code == 260


async def test_a_stream_starts_where_it_is_asked_to(source: Source) -> None:
    scope = Scope("orders", source.database, "orders")
    source.insert({"_id": 0})
    events = await events_of(source, lambda to: [to.insert({"_id": n}) for n in (1, 2, 3)], scope)
    for start, expected in (
        (StartPoint(resume_after=events[0].token), [2, 3]),
        (StartPoint(start_after=events[1].token), [3]),
        (StartPoint(at_operation_time=events[1].cluster_time), [2, 3]),
    ):
        async with (
            source.driver() as driver,
            ChangeStream(driver, scope, OPTIONS, start) as stream,
        ):
            assert len(await stream.next_batch()) == 0
            assert [(e.document_key or {})["_id"] for e in await rest(stream)] == expected
