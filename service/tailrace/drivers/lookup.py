"""Reads current documents by their keys, undecoded, from where ``updateLookup`` would read them.

mongod finds the collection by its UUID, which stays the same when the collection is renamed within
its database (``CommonMongodProcessInterface::lookupSingleDocument``, 6.0). ``find`` takes name and
UUID. If they do not match, the error tells which collection has the UUID.
"""

from typing import Any

from bson.binary import Binary
from bson.raw_bson import RawBSONDocument

from tailrace.drivers.connection import COMMAND_MS, Connection
from tailrace.drivers.finds import COLLECTION_UUID_SINCE, UUID_MISMATCH, oldest
from tailrace.drivers.pinned_commands import PinnedCommands
from tailrace.errors import CommandFailed
from tailrace.event.reply import Reply
from tailrace.stream import LookUp


async def look_up(connection: Connection, session: Any, wanted: LookUp) -> Reply:
    """Implements :meth:`tailrace.stream.driver_port.Driver.look_up`, in its own session."""
    concern: dict[str, Any] = {"level": "majority"}
    if wanted.since is not None:
        concern["afterClusterTime"] = wanted.since
    command: dict[str, Any] = {
        "find": wanted.collection,
        "filter": RawBSONDocument(wanted.filter),
        "batchSize": wanted.most + 1,  # one more: so the first reply closes the cursor
        "readConcern": concern,
        "maxTimeMS": COMMAND_MS,
    }
    takes_uuid = oldest(connection, COLLECTION_UUID_SINCE) >= COLLECTION_UUID_SINCE
    if wanted.uuid is not None and takes_uuid:
        command["collectionUUID"] = Binary(wanted.uuid, 4)
    mode = connection.read_preference(wanted.read_preference)
    find = PinnedCommands(connection, session, wanted.database, mode)
    while True:
        try:
            reply = await find.first(command)
        except CommandFailed as error:
            if error.code != UUID_MISMATCH:
                raise
            name = _actual_name(error)
            if name is None:
                return Reply(b"", ())
            command["find"] = name
        else:
            find.kill(reply.cursor_id, reply.collection)
            return reply


def _actual_name(error: CommandFailed) -> str | None:
    """The name of the collection of the database that has the UUID, if any."""
    details = getattr(error.__cause__, "details", None) or {}
    name = details.get("actualCollection")
    return name if isinstance(name, str) else None
