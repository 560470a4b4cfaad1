"""``find`` and its later commands on the same server, undecoded."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument

from tailrace.drivers.connection import Connection, mapped
from tailrace.drivers.cursor import RAW
from tailrace.drivers.pinning import Pin, pinned
from tailrace.errors import DriverError
from tailrace.event.found import Found, read_found

COLLECTION_UUID_SINCE = 17
"""The wire version (server 6.0) from which ``find`` takes ``collectionUUID``."""

FIND_SECONDS = 30.0
"""How long a find may take, with all its replies. If it takes longer, the connection hangs: changes
wait for the find, and must not hang as well."""

UUID_MISMATCH = 361
"""CollectionUUIDMismatch (mongod, src/mongo/base/error_codes.yml)."""


def oldest(connection: Connection, default: int) -> int:
    """The lowest wire version of the known servers."""
    servers = connection.topology.server_descriptions().values()
    versions = [each.max_wire_version for each in servers if each.is_server_type_known]
    return min(versions, default=default)


class RawFind:
    """The commands of one find. All go to the server that the first command chose."""

    def __init__(
        self, connection: Connection, session: Any, database: str, read_preference: str | None
    ) -> None:
        self.mode = connection.read_preference(read_preference)
        self._connection = connection
        self._session = session
        self._database = connection.database(database)
        self._pin = Pin()

    async def first(self, command: Mapping[str, Any]) -> Found:
        """Sends the ``find``; returns its reply."""
        found = await self._run(command)
        self._pin.chosen = self._pin.address is not None
        return found

    async def more(self, found: Found) -> Found:
        """The next reply after one that has a cursor."""
        collection = found.namespace.partition(".")[2]
        return await self._run({"getMore": Int64(found.cursor_id), "collection": collection})

    def kill(self, found: Found) -> None:
        """Frees a reply's cursor, if it has one, in the background."""
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
