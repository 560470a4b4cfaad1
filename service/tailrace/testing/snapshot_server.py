"""Answers what a snapshot asks of the server, from an oplog in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import bson
from bson import Binary

from tailrace.errors import CommandFailed
from tailrace.event import Namespace
from tailrace.event.reply import Reply
from tailrace.snapshot.server import Find
from tailrace.testing.oplog import CollectionHistory, Oplog
from tailrace.testing.stream import found


@dataclass(frozen=True, slots=True)
class MemorySnapshotServer:
    """A :class:`tailrace.snapshot.server.SnapshotServer`, without filters.

    The ``_id``s of a collection are in the order of their first insert.
    """

    oplog: Oplog

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        oplog = self.oplog
        if "listCollections" in command:
            wanted = command.get("filter", {})
            listed = [
                {"name": each.ns.coll, "type": "collection", "info": {"uuid": Binary(each.uuid, 4)}}
                for each in oplog.collections.values()
                if each.ns.db == database and _is_wanted(each, wanted)
            ]
            return {"cursor": {"id": 0, "firstBatch": listed}}
        if "listDatabases" in command:
            names = sorted({ns.db for ns in oplog.collections})
            return {"databases": [{"name": name} for name in names]}
        if "count" in command:
            of = oplog.collections.get(Namespace(database, command["count"]))
            return {"n": len(list(of.at())) if of is not None else 0}
        time = oplog.now
        oplog.tick()  # later than any row that was read so far: the stream moves on to it
        oplog.wake()
        return {"ok": 1, "operationTime": time}

    async def first_batch(self, database: str, command: Mapping[str, Any]) -> Reply:
        raise CommandFailed("snapshots in memory are read in one range", code=115)

    async def find(self, find: Find) -> Sequence[Reply]:
        of = self.oplog.collections.get(Namespace(find.database, find.collection))
        if of is None or of.uuid != find.uuid:
            raise CommandFailed("another collection", code=361, code_name="CollectionUUIDMismatch")
        if of.since is not None and find.time < of.since:
            raise CommandFailed("it was changed since", code=246, code_name="SnapshotUnavailable")
        ids = list(of.versions)
        after, until = 0, len(ids)
        for condition in find.command["filter"].get("$and", ()):
            if "$expr" not in condition:
                raise CommandFailed("snapshots in memory take no filter", code=115)
            ((operator, (_, literal)),) = condition["$expr"].items()
            at = ids.index(bson.encode({"_id": bson.decode(literal.raw)["$literal"]})) + 1
            after, until = (at, until) if operator == "$gt" else (after, at)
        chosen = set(ids[after:until])
        rows = [raw for key, raw in of.at(find.time) if key in chosen]
        return [found(rows[: find.command["limit"]])]


def _is_wanted(collection: CollectionHistory, wanted: Mapping[str, Any]) -> bool:
    if "$or" in wanted:
        return any(_is_wanted(collection, one) for one in wanted["$or"])
    if "info.uuid" in wanted:
        return bytes(wanted["info.uuid"]) == collection.uuid
    if not wanted:
        return True
    name = wanted["name"]
    if isinstance(name, Mapping):
        return str(collection.ns.coll) > str(name["$gt"])
    return bool(collection.ns.coll == name)
