"""Lists the collections of a scope, as the server describes them."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.database_names import WITHOUT_EVENTS
from tailrace.errors import CommandFailed
from tailrace.model import Scope
from tailrace.snapshot.server import SnapshotServer
from tailrace.stream.resumable import UNAUTHORIZED

_MAY_NOT_LIST = (
    "a snapshot lists the collections first, so the user needs the action 'listCollections' on the "
    "database {database!r}, beside 'find' (the role 'read' on the database has both); or set "
    "snapshot: never"
)


@dataclass(frozen=True, slots=True)
class ListedCollection:
    """A collection as the server lists it. ``refusal``: why it cannot be read; empty if it can.

    ``images``: whether the server stores pre- and post-images of its changes.
    """

    database: str
    name: str
    uuid: str = ""
    clustered: bool = False
    refusal: str = ""
    images: bool = False
    capped: bool = False

    @classmethod
    def of(cls, database: str, document: Mapping[str, Any]) -> "ListedCollection":
        """Reads an entry of ``listCollections``."""
        name, kind = str(document["name"]), document.get("type", "collection")
        options, uuid = document.get("options", {}), document.get("info", {}).get("uuid")
        if kind in ("view", "timeseries"):
            uuid = None  # it cannot be read
        refusal = ""
        if kind == "view":
            refusal = "it is a view, which has no documents of its own"
        elif kind == "timeseries":
            refusal = "it is a time series collection, which has no change events"
        elif options.get("capped"):
            refusal = "it is capped: the server cannot read it as of a cluster time"
        elif uuid is None:
            refusal = "the server tells no UUID of it"
        return cls(
            database,
            name,
            bytes(uuid).hex() if uuid is not None else "",
            "clusteredIndex" in options,
            refusal,
            bool(options.get("changeStreamPreAndPostImages", {}).get("enabled")),
            bool(options.get("capped")),
        )


async def listed(server: SnapshotServer, scope: Scope) -> AsyncIterator[ListedCollection]:
    """The collections of a scope in the order of their names, without system collections."""
    for database in await _databases(server, scope):
        async for document in _described(server, database, scope.collection or {"$gt": ""}):
            if not document["name"].startswith("system."):
                yield ListedCollection.of(database, document)


async def _described(
    server: SnapshotServer, database: str, names: str | Mapping[str, str]
) -> AsyncIterator[Mapping[str, Any]]:
    """The descriptions of the collections with these names, in their order.

    A reply holds 16 MB of them, in no order: if these are not all, those before and after one of
    them are asked for. The server times the cursor out.
    """
    command = {"listCollections": 1, "filter": {"name": names}, "cursor": {}}
    try:
        cursor = (await server.run(database, command))["cursor"]
    except CommandFailed as error:
        if error.code == UNAUTHORIZED:
            advice = _MAY_NOT_LIST.format(database=database)
            error.args = (f"{error.args[0]}: {advice}",)
        raise
    documents = sorted(cursor["firstBatch"], key=lambda document: str(document["name"]))
    if isinstance(names, str) or not (cursor["id"] and documents):
        for document in documents:
            yield document
        return
    middle = documents[len(documents) // 2]
    async for document in _described(server, database, {**names, "$lt": middle["name"]}):
        yield document
    yield middle
    async for document in _described(server, database, {**names, "$gt": middle["name"]}):
        yield document


async def _databases(server: SnapshotServer, scope: Scope) -> list[str]:
    if scope.database is not None:
        return [scope.database]
    command = {"listDatabases": 1, "nameOnly": True, "authorizedDatabases": True}
    names = [str(each["name"]) for each in (await server.run("admin", command))["databases"]]
    return sorted(set(names).difference(WITHOUT_EVENTS))
