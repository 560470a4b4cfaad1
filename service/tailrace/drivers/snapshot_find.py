"""Reads documents as of a cluster time, undecoded.

Since MongoDB 5.0 ``find`` accepts the time; on 4.4 a transaction does. All replies of one find come
from one server and are as of the same time.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bson.binary import Binary
from bson.int64 import Int64
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import Primary

from tailrace.drivers import transactions
from tailrace.drivers.connection import COMMAND_MS, Connection, mapped
from tailrace.drivers.finds import COLLECTION_UUID_SINCE, UUID_MISMATCH, oldest
from tailrace.drivers.pinned_commands import PinnedCommands
from tailrace.errors import CommandFailed, DriverError, ScopeHalted
from tailrace.event.reply import Reply
from tailrace.snapshot.server import Find

SNAPSHOT_FINDS_SINCE = 13
"""The wire version (server 5.0) from which ``find`` takes the read concern ``snapshot``."""
TRANSACTIONS_SINCE = 9
"""The wire version (server 4.4) from which a transaction is used instead."""


class _AsOf(ReadConcern):
    """The read concern ``snapshot`` at a time. PyMongo sends it with a transaction as it is."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__("snapshot")
        self._document = dict(document)

    @property
    def document(self) -> dict[str, Any]:
        return self._document


async def find(connection: Connection, session: Any, wanted: Find) -> list[Reply]:
    """Implements :meth:`tailrace.snapshot.server.SnapshotServer.find`, in its own session."""
    version = oldest(connection, SNAPSHOT_FINDS_SINCE)
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
        replies = await reading.all({"readConcern": as_of}, pinned=version >= COLLECTION_UUID_SINCE)
    else:
        await transactions.begin(session, read_concern=_AsOf(as_of))
        reading.commands.mode = Primary()  # a transaction allows no other mode
        try:
            replies = await reading.all({}, pinned=False)
        finally:
            with suppress(DriverError), mapped():
                await session.abort_transaction()  # there is nothing to commit
    if version < COLLECTION_UUID_SINCE:
        await reading.require_uuid()
    return replies


class _Reading:
    """The commands of one find."""

    def __init__(self, connection: Connection, session: Any, wanted: Find) -> None:
        self._connection = connection
        self._wanted = wanted
        mode = connection.read_preference(wanted.read_preference)
        self.commands = PinnedCommands(connection, session, wanted.database, mode)

    async def all(self, fields: Mapping[str, Any], *, pinned: bool) -> list[Reply]:
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
        last = await self.commands.first(command)
        replies = [last]
        most = wanted.most_bytes or sys.maxsize
        try:
            while not last.closed and sum(len(each.buffer) for each in replies) < most:
                cursor = {"getMore": Int64(last.cursor_id), "collection": last.collection}
                last = await self.commands.run(cursor)
                replies.append(last)
        finally:
            self.commands.kill(last.cursor_id, last.collection)
        return replies

    async def require_uuid(self) -> None:
        """Raises the error of a server since 6.0 if another collection has the name now."""
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
