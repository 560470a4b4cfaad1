"""A driver reads documents by their keys, and finds those that mongod's ``updateLookup`` finds."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio.to_thread
import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.drivers import finds, lookup
from tailrace.drivers.connection import COMMAND_MS
from tailrace.errors import CommandFailed, ConnectionFailed
from tailrace.stream import LookUp
from tests.contract.collection import CollectionScene, documents
from tests.contract.streams import DRIVER_NAMES, connected
from tests.daemon import until
from tests.mongod import ReplicaSet
from tests.scripted import ScriptedSet

pytestmark = pytest.mark.parametrize("name", DRIVER_NAMES)


class Scene(CollectionScene):
    """A driver that looks up the collection's documents."""

    def wanted(self, *keys: Any, **fields: Any) -> LookUp:
        filter = bson.encode({"_id": {"$in": list(keys)}})
        given = {"uuid": None, "filter": filter, "most": len(keys), "since": self.now} | fields
        return LookUp(self.database, "c", **given)

    async def read(self, *keys: Any, **fields: Any) -> list[dict[str, Any]]:
        async with connected(self.name, self.uri) as driver:
            return documents(await driver.look_up(self.wanted(*keys, **fields)))


@pytest.fixture
def scene(name: str, mongod: ReplicaSet, database: str) -> Iterator[Scene]:
    with mongod.client() as client:
        yield Scene(mongod.uri, name, database, client)


async def test_documents_are_found_by_any_filter(scene: Scene) -> None:
    scene.collection.insert_many([{"_id": n, "region": "eu"} for n in range(300)])
    found = await scene.read(*range(200), 999)
    assert sorted(each["_id"] for each in found) == [*range(200)]
    whole = [{"_id": 1, "region": "eu"}, {"_id": 2, "region": "us"}]
    assert await scene.read(filter=bson.encode({"$or": whole}), most=2) == whole[:1]


async def test_none_are_found_where_there_is_no_collection(scene: Scene) -> None:
    assert await scene.read(1) == []


RENAMED, ELSEWHERE, GONE = "renamed", "renamed to another database", "dropped"


@pytest.mark.parametrize("again", [False, True], ids=["", "and made again"])
@pytest.mark.parametrize("change", [RENAMED, ELSEWHERE, GONE])
async def test_documents_are_of_the_collection_that_has_the_uuid(
    scene: Scene, mongod: ReplicaSet, change: str, again: bool
) -> None:
    """A rename within the database keeps the UUID, which the server itself checks."""
    scene.collection.insert_one({"_id": 1, "n": "first"})
    uuid = scene.uuid
    other = f"{scene.database}_other"
    if change == RENAMED:
        scene.collection.rename("d")
    elif change == ELSEWHERE:
        names = {"renameCollection": f"{scene.database}.c", "to": f"{other}.c"}
        scene.client.admin.command(names)
    else:
        scene.collection.drop()
    if again:
        scene.collection.insert_one({"_id": 1, "n": "second"})
    found = await scene.read(1, uuid=uuid)
    assert [each["n"] for each in found] == (["first"] if change == RENAMED else [])
    by_name = await scene.read(1)
    assert [each["n"] for each in by_name] == (["second"] if again else [])
    scene.client.drop_database(other)


async def test_an_older_server_is_asked_by_name(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "oldest", lambda *_: 13)
    scene.collection.insert_one({"_id": 1})
    assert await scene.read(1, uuid=b"x" * 16) == [{"_id": 1}]


async def test_more_than_one_reply_holds_is_told_and_its_cursor_freed(
    scene: Scene, mongod: ReplicaSet
) -> None:
    scene.collection.insert_many([{"_id": n, "text": "x" * 9_000_000} for n in range(3)])

    def open_cursors() -> int:
        return int(scene.client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"])

    before = open_cursors()
    async with connected(scene.name, scene.uri) as driver:
        found = await driver.look_up(scene.wanted(0, 1, 2))
        assert (len(found), bool(found.cursor_id)) == (1, True)
        await anyio.to_thread.run_sync(until, lambda: open_cursors() <= before, "its end")
        whole = await driver.look_up(scene.wanted(0))
        assert (len(whole), whole.cursor_id) == (1, 0)


async def test_it_reads_with_majority_and_a_time_limit(name: str, scripted: ScriptedSet) -> None:
    since = Timestamp(5, 1)
    async with connected(name, scripted.uri) as driver:
        with suppress(CommandFailed):  # the scripted server has no find
            await driver.look_up(LookUp("shop", "c", None, bson.encode({"_id": 1}), 1, since))
    (find,) = scripted.commands("find")
    assert find.document["readConcern"] == {"level": "majority", "afterClusterTime": since}
    assert find.document["maxTimeMS"] == COMMAND_MS


async def test_without_a_time_documents_are_the_newest_of_the_server(scene: Scene) -> None:
    scene.collection.insert_one({"_id": 1})
    assert await scene.read(1, since=None) == [{"_id": 1}]


async def test_a_document_of_16_megabytes_is_found(scene: Scene) -> None:
    scene.collection.insert_one({"_id": 1, "text": "x" * (16 * 1024 * 1024 - 40)})
    assert len((await scene.read(1))[0]["text"]) == 16 * 1024 * 1024 - 40


async def test_documents_are_not_older_than_the_time(
    scene: Scene, three_members: ReplicaSet
) -> None:
    """A secondary too: it waits until it has the primary's state of that time."""
    with three_members.client() as client:
        collection = client[scene.database].c
        async with connected(scene.name, three_members.uri) as driver:
            for n in range(20):
                collection.replace_one({"_id": 1}, {"n": n}, upsert=True)
                # Tells the driver the cluster time, as a reply of the stream would.
                since = (await driver.run("admin", {"ping": 1}))["operationTime"]
                wanted = scene.wanted(1, since=since, read_preference="secondary")
                assert documents(await driver.look_up(wanted)) == [{"_id": 1, "n": n}]
        client.drop_database(scene.database)


@pytest.mark.parametrize("code", [13, 11602])
async def test_an_error_of_the_server_is_ours(scene: Scene, mongod: ReplicaSet, code: int) -> None:
    scene.collection.insert_one({"_id": 1})
    mongod.fail("find", 1, errorCode=code, namespace=f"{scene.database}.c")
    with pytest.raises(CommandFailed) as raised:
        await scene.read(1)
    assert raised.value.code == code


async def test_a_look_up_that_hangs_is_given_up(
    scene: Scene, mongod: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finds, "FIND_SECONDS", 0.3)
    scene.collection.insert_one({"_id": 1})
    mongod.fail("find", 1, blockConnection=True, blockTimeMS=1500)
    with pytest.raises(ConnectionFailed, match=r"no answer for 0\.3 s"):
        await scene.read(1)
    assert await scene.read(1) == [{"_id": 1}]
