"""The scripted server answers like mongod: both get the same commands, and replies are compared.

Fields, their order, types, codes and labels must be equal; values may differ. So a test on the
scripted server sees the replies of a real one, except for ``wallTime``: events have it since
MongoDB 6.0, but on the scripted server only if the test writes it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError

from tests.mongod import ReplicaSet
from tests.scripted import RESUMABLE, ScriptedSet, token_time

pytestmark = pytest.mark.integration

Document = Mapping[str, Any]


class Scripted:
    """Writes to ``shop``, where ``orders`` exists already."""

    def __init__(self, server: ScriptedSet) -> None:
        ns = "shop.orders"
        self._append = server.append
        self.insert = lambda key: server.insert(ns, {"_id": key})
        self.drop = lambda: server.drop(ns)
        self.rename = lambda to: server.rename(ns, f"shop.{to}")
        self.drop_database = lambda: server.drop_database("shop", "orders")
        self.fail_read = lambda code: server.fail("getMore", code=code, labels=(RESUMABLE,))

    def update(self, key: Any, fields: Document) -> None:
        described = {"updatedFields": fields, "removedFields": [], "truncatedArrays": []}
        self._write({"operationType": "update"}, key, updateDescription=described)

    def replace(self, document: Document) -> None:
        self._write({"operationType": "replace", "fullDocument": document}, document["_id"])

    def delete(self, key: Any) -> None:
        self._write({"operationType": "delete"}, key)

    def _write(self, begin: Document, key: Any, **more: Any) -> None:
        ns = {"db": "shop", "coll": "orders"}
        self._append({**begin, "ns": ns, "documentKey": {"_id": key}, **more})


class Real:
    def __init__(self, server: ReplicaSet, client: MongoClient[dict[str, Any]]) -> None:
        orders = client.shop.orders
        self.insert = lambda key: orders.insert_one({"_id": key})
        self.update = lambda key, fields: orders.update_one({"_id": key}, {"$set": fields})
        self.replace = lambda document: orders.replace_one({"_id": document["_id"]}, document)
        self.delete = lambda key: orders.delete_one({"_id": key})
        self.drop, self.rename, self.fail_read = orders.drop, orders.rename, server.fail_reads
        self.drop_database = lambda: client.drop_database("shop")


class Talk:
    """Commands to a server, and the shape of each reply."""

    def __init__(self, server: Scripted | Real, client: MongoClient[dict[str, Any]]) -> None:
        self.server, self.client = server, client
        self.shapes: list[Any] = []
        self._session: ClientSession = client.start_session()

    def __call__(self, database: str, name: str, value: Any, **fields: Any) -> dict[str, Any]:
        """Sends a command and returns the reply; of an error, its code, name and labels."""
        try:
            # A dict keeps the order of the fields of events.
            reply = self.client[database].command(name, value, session=self._session, **fields)
        except PyMongoError as error:
            details = getattr(error, "details", None) or {}
            kept = {"code", "codeName", "errorLabels"}
            reply = {field: details[field] for field in sorted(kept & set(details))}
            self.shapes.append((name, reply))
            return reply
        self.shapes.append((name, shape(reply)))
        return reply

    def open(self, target: Any = "orders", database: str = "shop", **stage: Any) -> dict[str, Any]:
        """Opens a change stream; returns its cursor."""
        pipeline = [{"$changeStream": stage}]
        reply = self(database, "aggregate", target, pipeline=pipeline, cursor={"batchSize": 0})
        return dict(reply.get("cursor", {}))

    def read(self, cursor: Document, **fields: Any) -> list[dict[str, Any]]:
        """The next events; waits for the first."""
        database, _, collection = str(cursor["ns"]).partition(".")
        more = {"collection": collection, "maxTimeMS": 50, **fields}
        while True:
            reply = self(database, "getMore", cursor["id"], **more)
            batch = reply.get("cursor", {}).get("nextBatch", [])
            if batch or "cursor" not in reply or not reply["cursor"]["id"]:
                return list(batch)
            self.shapes.pop()  # the number of empty replies before is random

    def until(self, cursor: Document, count: int) -> list[dict[str, Any]]:
        """The next ``count`` events, from as many replies as they need, as one shape."""
        events: list[dict[str, Any]] = []
        while len(events) < count:
            events += self.read(cursor)
            self.shapes.pop()
        self.shapes.append([shape(event) for event in events])
        return events


def shape(value: Any) -> Any:
    """Names in their order, with types; of an array, the shapes of its elements."""
    if isinstance(value, Mapping):
        if value.keys() == {"clusterTime", "signature"}:
            return "$clusterTime"
        return [(name, shape(each)) for name, each in value.items() if name != "wallTime"]
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__


@contextmanager
def talking(name: str, request: pytest.FixtureRequest) -> Iterator[Talk]:
    server = request.getfixturevalue(name)
    with MongoClient[dict[str, Any]](server.uri, heartbeatFrequencyMS=500) as client:
        if name == "scripted":
            yield Talk(Scripted(server), client)
            return
        client.drop_database("shop")
        client.shop.create_collection("orders")
        yield Talk(Real(server, client), client)
        client.drop_database("shop")


def openings(talk: Talk) -> None:
    talk.open()
    talk.open(1)
    talk.open(1, "admin", allChangesForCluster=True)
    talk.open(fullDocument="updateLookup", fullDocumentBeforeChange="whenAvailable")


def refused_openings(talk: Talk) -> None:
    talk.open(1, allChangesForCluster=True)
    for database in ("admin", "local", "config"):
        talk.open("orders", database)
    token = talk.open()["postBatchResumeToken"]
    talk.open(resumeAfter=token, startAfter=token)


def reads(talk: Talk) -> None:
    cursor = talk.open()
    talk("shop", "getMore", cursor["id"], collection="orders", maxTimeMS=1)
    talk.server.insert(1)
    talk.until(cursor, 1)
    talk("shop", "killCursors", "orders", cursors=[cursor["id"]])
    talk("shop", "killCursors", "orders", cursors=[cursor["id"]])
    talk("shop", "getMore", cursor["id"], collection="orders")


def writes(talk: Talk) -> None:
    cursor = talk.open()
    talk.server.insert(1)
    talk.server.update(1, {"a": 1, "b": "text"})
    talk.server.replace({"_id": 1, "c": 2})
    talk.server.delete(1)
    talk.until(cursor, 4)


def positions(talk: Talk) -> None:
    cursor = talk.open()
    for key in (1, 2):
        talk.server.insert(key)
    first, second = talk.until(cursor, 2)
    assert talk.until(talk.open(resumeAfter=first["_id"]), 1)[0]["_id"] == second["_id"]
    assert talk.until(talk.open(startAfter=first["_id"]), 1)[0]["_id"] == second["_id"]
    again = talk.open(startAtOperationTime=second["clusterTime"])
    assert talk.until(again, 1)[0]["_id"] == second["_id"]


def openings_without_events(talk: Talk) -> None:
    """A batchSize of 0: nothing is read yet, and the position is the start position."""
    cursor = talk.open()
    for key in (1, 2):
        talk.server.insert(key)
    first, _ = talk.until(cursor, 2)
    for option in ("resumeAfter", "startAfter"):
        opened = talk.open(**{option: first["_id"]})
        assert (opened["firstBatch"], opened["postBatchResumeToken"]) == ([], first["_id"])
    opened = talk.open(startAtOperationTime=first["clusterTime"])
    assert opened["firstBatch"] == []
    assert token_time(opened["postBatchResumeToken"]) == first["clusterTime"]
    talk.server.drop()
    dropped, invalidate = talk.until(cursor, 2)
    opened = talk.open(resumeAfter=dropped["_id"])
    assert opened["id"] != 0
    assert [event["operationType"] for event in talk.until(opened, 1)] == ["invalidate"]
    opened = talk.open(startAfter=invalidate["_id"])
    assert opened["postBatchResumeToken"] == invalidate["_id"]


def a_drop(talk: Talk) -> None:
    talk.server.insert(1)
    cursor = talk.open()
    talk.server.drop()
    *_, last = talk.until(cursor, 2)
    talk.open(resumeAfter=last["_id"])
    behind = talk.open(startAfter=last["_id"])
    talk.server.insert(2)
    talk.until(behind, 1)


def a_rename(talk: Talk) -> None:
    talk.server.insert(1)
    cursor = talk.open()
    talk.server.rename("archive")
    talk.until(cursor, 2)


def a_dropped_database(talk: Talk) -> None:
    talk.server.insert(1)
    cursor = talk.open(1)
    talk.server.drop_database()
    talk.until(cursor, 3)


def failed_reads(talk: Talk) -> None:
    for code in (6, 91, 189, 11600, 10107, 11602):
        cursor = talk.open()
        talk.server.fail_read(code)
        talk("shop", "getMore", cursor["id"], collection="orders", maxTimeMS=1)


def other_commands(talk: Talk) -> None:
    talk("admin", "ping", 1)
    talk("admin", "dance", 1)


SCRIPTS = [
    *(openings, openings_without_events, refused_openings, reads, writes, positions, a_drop),
    a_rename,
    *(a_dropped_database, failed_reads, other_commands),
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_scripted_server_answers_as_mongod_does(
    request: pytest.FixtureRequest, script: Callable[[Talk], None]
) -> None:
    shapes = []
    for name in ("scripted", "mongod"):
        with talking(name, request) as talk:
            script(talk)
            shapes.append(talk.shapes)
    for scripted, real in zip(*shapes, strict=True):
        assert scripted == real


def test_what_the_scripted_hello_says_has_mongods_types(
    mongod: ReplicaSet, scripted: ScriptedSet
) -> None:
    """It omits fields, but adds none."""
    found = []
    for server in (mongod, scripted):
        with MongoClient[dict[str, Any]](server.uri) as client:
            found.append(dict(shape(client.admin.command("hello"))))
    real, posed = found
    assert {name: real.get(name) for name in posed} == posed
