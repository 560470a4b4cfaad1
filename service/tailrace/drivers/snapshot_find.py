"""Reads documents as of a cluster time, undecoded.

Since MongoDB 5.0 ``find`` takes the time; on 4.4 a transaction does. The replies of one find come
from one server, and its later ones are of the same time.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bson.binary import Binary
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import Primary

from tailrace.drivers.connection import COMMAND_MS, Connection, mapped
from tailrace.drivers.cursor import RAW
from tailrace.drivers.pinning import Pin, pinned
from tailrace.errors import CommandFailed, DriverError, ScopeHalted
from tailrace.event.found import Found, read_found
from tailrace.snapshot.server import Find

SNAPSHOT_FINDS_SINCE = 13
"""The wire version (server 5.0) from which ``find`` takes the read concern ``snapshot``."""
TRANSACTIONS_SINCE = 9
"""The wire version (server 4.4) from which a transaction is used instead."""
COLLECTION_UUID_SINCE = 17
"""The wire version (server 6.0) from which ``find`` takes ``collectionUUID``."""

FIND_SECONDS = 30.0
"""How long a find may take, with all its replies. Beyond that the connection hangs: changes, which
wait for it, must not hang as well."""

UUID_MISMATCH = 361
"""CollectionUUIDMismatch (mongod, src/mongo/base/error_codes.yml)."""


class _AsOf(ReadConcern):
    """The read concern ``snapshot`` at a time, which PyMongo passes on with a transaction."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__("snapshot")
        self._document = dict(document)

    @property
    def document(self) -> dict[str, Any]:
        return self._document


async def find(connection: Connection, session: Any, wanted: Find) -> list[Found]:
    """As :meth:`tailrace.snapshot.server.SnapshotServer.find` says; in a session of its own."""
    servers = connection.topology.server_descriptions().values()
    versions = [each.max_wire_version for each in servers if each.is_server_type_known]
    version = min(versions, default=SNAPSHOT_FINDS_SINCE)
    if version < TRANSACTIONS_SINCE:
        raise ScopeHalted(
            "a snapshot reads documents as of a cluster time, and a member of this replica set is "
            "older than MongoDB 4.4, which cannot: upgrade it, or set snapshot: never"
        )
    reading = _Reading(connection, session, wanted)
    if version < COLLECTION_UUID_SINCE:
        await reading.require_uuid()
    as_of = {"level": "snapshot", "atClusterTime": wanted.time}
    if version >= SNAPSHOT_FINDS_SINCE:
        found = await reading.all({"readConcern": as_of}, pinned=version >= COLLECTION_UUID_SINCE)
    else:
        with mapped():
            session.start_transaction(read_concern=_AsOf(as_of))
        reading.mode = Primary()  # a transaction has no other
        try:
            found = await reading.all({}, pinned=False)
        finally:
            with suppress(DriverError), mapped():
                await session.abort_transaction()  # it has only read
    if version < COLLECTION_UUID_SINCE:
        await reading.require_uuid()
    return found


class _Reading:
    """The commands of one find."""

    def __init__(self, connection: Connection, session: Any, wanted: Find) -> None:
        self._connection = connection
        self._session = session
        self._wanted = wanted
        self._database = connection.database(wanted.database)
        self.mode = connection.read_preference(wanted.read_preference)
        self._pin = Pin()

    async def all(self, fields: Mapping[str, Any], *, pinned: bool) -> list[Found]:
        """The replies; ``pinned``: the server itself checks the collection's UUID."""
        wanted = self._wanted
        command = {
            "find": wanted.collection,
            "maxTimeMS": COMMAND_MS,
            **wanted.command,
            **fields,
        }
        if pinned:
            command["collectionUUID"] = Binary(wanted.uuid, 4)
        replies = [await self._run(command)]
        self._pin.chosen = self._pin.address is not None
        most = wanted.most_bytes or sys.maxsize
        try:
            while replies[-1].cursor_id and sum(len(each.buffer) for each in replies) < most:
                replies.append(await self._run(self._more(replies[-1])))
        finally:
            self._kill(replies[-1])
        return replies

    async def require_uuid(self) -> None:
        """Raises what a server since 6.0 does where the name is another collection's."""
        wanted = self._wanted
        listed = await self._connection.run(
            wanted.database,
            {"listCollections": 1, "filter": {"name": wanted.collection}, "cursor": {}},
        )
        uuids = [bytes(each["info"].get("uuid", b"")) for each in listed["cursor"]["firstBatch"]]
        if uuids != [wanted.uuid]:
            raise CommandFailed(
                f"{wanted.database}.{wanted.collection} is another collection now",
                code=UUID_MISMATCH,
                code_name="CollectionUUIDMismatch",
            )

    def _more(self, found: Found) -> Mapping[str, Any]:
        collection = found.namespace.partition(".")[2]
        return {"getMore": Int64(found.cursor_id), "collection": collection}

    def _kill(self, found: Found) -> None:
        if not found.cursor_id:
            return
        collection = found.namespace.partition(".")[2]
        command = {"killCursors": collection, "cursors": [Int64(found.cursor_id)]}

        async def kill() -> None:
            with suppress(DriverError, RuntimeError):
                await self._send(command, session=None)

        self._connection.in_background(kill, f"kill cursor {found.cursor_id}")

    async def _run(self, command: Mapping[str, Any]) -> Found:
        return read_found(await self._send(command, self._session))

    async def _send(self, command: Mapping[str, Any], session: Any) -> bytes:
        with pinned(self._pin), mapped(self._pin):
            reply: RawBSONDocument = await self._database.command(
                dict(command), read_preference=self.mode, codec_options=RAW, session=session
            )
        return bytes(reply.raw)
