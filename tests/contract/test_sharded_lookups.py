"""Documents of sharded collections are looked up by ``_id``, through a mongos."""

from typing import Any

import anyio
import bson
import pytest

from tailrace.event import ChangeEvent
from tailrace.model import Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions
from tailrace.stream.lookup import LookupStream
from tests.contract.streams import DRIVER_NAMES, connected
from tests.scripted import Command, ScriptedSet
from tests.scripted.sharded import SEQUENCES, ShardedCollection

pytestmark = pytest.mark.parametrize("name", DRIVER_NAMES)


class Router(ScriptedSet):
    """A mongos that finds documents by ``{_id: {$in: […]}}``, on all shards."""

    def __init__(self, collections: list[ShardedCollection]) -> None:
        super().__init__(kind="mongos")
        self.filters: list[dict[str, Any]] = []
        self._collections = collections

    def find(self, command: Command) -> dict[str, Any] | None:
        if command.name != "find" or command.document["find"] != "orders":
            return None
        self.filters.append(command.document["filter"])
        wanted = command.document["filter"]["_id"]["$in"]
        documents = [each for of in self._collections for each in of.documents.values()]
        found = [each for each in documents if each["_id"] in wanted]
        assert len(found) < command.document["batchSize"]  # else a cursor would stay open
        return {"cursor": {"id": bson.Int64(0), "ns": "shop.orders", "firstBatch": found}}


async def updates(name: str, collections: list[ShardedCollection]) -> list[ChangeEvent]:
    """The updates of the collections with their documents."""
    with Router(collections) as server:
        server.on_command(server.find)
        start = StartPoint(at_operation_time=server.cluster_time)
        count = sum([server.send(each) for each in collections])
        options = ChangeStreamOptions(max_await_time_ms=20)
        events: list[ChangeEvent] = []
        async with (
            connected(name, server.uri) as driver,
            ChangeStream(driver, Scope("orders", "shop", "orders"), options, start) as stream,
        ):
            looking = LookupStream(stream, driver)
            with anyio.fail_after(60):
                while len(events) < count:
                    events += (await looking.next_batch()).events()
    assert all(list(each) == ["_id"] for each in server.filters)
    return [event for event in events if event.operation_type == "update"]


async def test_every_update_has_the_document_that_lives(name: str) -> None:
    """However its shard key changed: in the update, before or after it, or by a move."""
    collections = [ShardedCollection(images=False) for _ in SEQUENCES]
    for identity, (collection, sequence) in enumerate(
        zip(collections, SEQUENCES.values(), strict=True)
    ):
        sequence(collection, identity)
    living = {k: v for each in collections for k, v in each.living().items()}
    found = await updates(name, collections)
    assert found
    for event in found:
        identity = (event.document_key or {})["_id"]
        assert event.full_document == living.get(identity)


async def test_documents_that_share_an_id_are_told_apart(name: str) -> None:
    one, other = ShardedCollection(images=False), ShardedCollection(images=False)
    one.insert(1, "us", of="one")
    one.update(1, n=1)
    other.insert(1, "uk", of="other")
    other.update(1, region="eu")
    other.update(1, n=2)
    found = await updates(name, [one, other])
    assert [(event.full_document or {})["of"] for event in found] == ["one", "other", "other"]
