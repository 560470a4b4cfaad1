"""Documents are read as of a cluster time, from the collection with a given UUID, undecoded."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import anyio
import pytest
from bson.timestamp import Timestamp

from tailrace.drivers import finds, snapshot_find
from tailrace.errors import CommandFailed, ConnectionFailed, ScopeHalted
from tailrace.snapshot.server import Find
from tests.contract.collection import CollectionScene, documents
from tests.contract.streams import DRIVER_NAMES, connected
from tests.guards import against_hanging
from tests.mongod import ReplicaSet
from tests.mongod.operations import operations

BY_FIND, BY_TRANSACTION = "by find", "by transaction"


pytestmark = pytest.mark.parametrize("name", DRIVER_NAMES)


@pytest.fixture(params=[BY_FIND, BY_TRANSACTION])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How to read: servers before 5.0 have only transactions, before 6.0 no collectionUUID."""
    if request.param == BY_TRANSACTION:
        monkeypatch.setattr(snapshot_find, "SNAPSHOT_FINDS_SINCE", 99)
        monkeypatch.setattr(snapshot_find, "COLLECTION_UUID_SINCE", 99)
    return str(request.param)


class Scene(CollectionScene):
    """A driver that reads the collection's documents as of a time."""

    async def read(
        self, time: Timestamp, uuid: bytes | None = None, **command: Any
    ) -> list[dict[str, Any]]:
        wanted = Find(self.database, "c", uuid or self.uuid, time, command)
        async with connected(self.name, self.uri) as driver:
            await driver.run("admin", {"ping": 1})  # so that the versions of the servers are known
            return list(chain.from_iterable(map(documents, await driver.find(wanted))))


@pytest.fixture
def scene(name: str, mongod: ReplicaSet, database: str) -> Iterator[Scene]:
    with mongod.client() as client:
        yield Scene(mongod.uri, name, database, client)


async def test_documents_are_those_of_the_time(scene: Scene, way: str) -> None:
    scene.collection.insert_many([{"_id": 1, "n": 1}, {"_id": 2}])
    before = scene.now
    scene.collection.update_one({"_id": 1}, {"$set": {"n": 2}})
    scene.collection.delete_one({"_id": 2})
    scene.collection.insert_one({"_id": 3})
    assert await scene.read(before) == [{"_id": 1, "n": 1}, {"_id": 2}]
    assert await scene.read(scene.now, sort={"_id": -1}, limit=1) == [{"_id": 3}]


async def test_all_replies_are_of_one_time(scene: Scene, way: str) -> None:
    scene.collection.insert_many([{"_id": n, "text": "x" * 3_000_000} for n in range(12)])
    time = scene.now
    scene.collection.delete_many({"_id": {"$gt": 5}})
    found = await scene.read(time, sort={"_id": 1})
    assert [each["_id"] for each in found] == list(range(12))


async def test_no_cursor_stays_open_after_the_byte_limit(scene: Scene) -> None:
    scene.collection.insert_many([{"_id": n, "text": "x" * 1000} for n in range(12)])
    command = {"sort": {"_id": 1}, "batchSize": 3}
    wanted = Find(scene.database, "c", scene.uuid, scene.now, command, most_bytes=1000)
    async with connected(scene.name, scene.uri) as driver:
        replies = await driver.find(wanted)
        assert [len(reply) for reply in replies] == [3]
        assert replies[0].cursor_id
        left = partial(operations, scene.client, {"ns": f"{scene.database}.c"}, idleCursors=True)
        with against_hanging():
            while left():  # noqa: ASYNC110 - the server's own
                await anyio.sleep(0.01)


@pytest.mark.parametrize("change", ["dropped", "renamed", "made again"])
async def test_another_collection_of_that_name_is_refused(
    scene: Scene, way: str, change: str
) -> None:
    scene.collection.insert_one({"_id": 1})
    uuid = scene.uuid
    if change == "renamed":
        scene.collection.rename("other")
    else:
        scene.collection.drop()
    if change == "made again":
        scene.collection.insert_one({"_id": 1})
    with pytest.raises(CommandFailed) as raised:
        await scene.read(scene.now, uuid)
    assert raised.value.code == finds.UUID_MISMATCH


@pytest.mark.parametrize("change", ["made", "renamed"])
async def test_a_time_before_the_collection_is_unavailable(
    scene: Scene, way: str, change: str
) -> None:
    """It is not read as of a time at which it had another name."""
    before = scene.now
    if change == "renamed":
        other = scene.collection.database.other
        other.insert_one({"_id": 1})
        before = scene.now
        other.rename("c")
    else:
        scene.collection.insert_one({"_id": 1})
    with pytest.raises(CommandFailed) as raised:
        await scene.read(before)
    assert raised.value.code == 246


async def test_a_server_without_snapshot_reads_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_find, "TRANSACTIONS_SINCE", 99)
    scene.collection.insert_one({"_id": 1})
    with pytest.raises(ScopeHalted, match=r"older than MongoDB 4\.4"):
        await scene.read(scene.now)


async def test_a_find_that_hangs_is_given_up(
    scene: Scene, mongod: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finds, "FIND_SECONDS", 0.3)
    scene.collection.insert_one({"_id": 1})
    time = scene.now
    mongod.fail("find", 1, blockConnection=True, blockTimeMS=1500)
    with pytest.raises(ConnectionFailed, match=r"no answer for 0\.3 s"):
        await scene.read(time)
    assert await scene.read(time) == [{"_id": 1}]
