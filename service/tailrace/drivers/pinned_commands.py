"""One sender for the commands of a cursor: all go to one server, and replies stay undecoded."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument

from tailrace.drivers.connection import COMMAND_MS, Connection, mapped
from tailrace.drivers.pinning import Pin, pinned
from tailrace.errors import DriverError
from tailrace.event.reply import Reply, read_reply

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


class PinnedCommands:
    """Sends the commands of one cursor.

    The first one chooses the server by ``mode``, the read preference. After :meth:`choose` all
    others go there.
    """

    def __init__(self, connection: Connection, session: Any, database: str, mode: Any) -> None:
        self.mode = mode
        self.pin = Pin()
        self._connection = connection
        self._session = session
        self._opened = connection.opened
        self._database = connection.database(database)

    async def run(self, command: Mapping[str, Any], *, of_events: bool = False) -> Reply:
        """Sends a command that returns a cursor, in the session."""
        raw = await self._send(command, self._database, self._session)
        return read_reply(raw, of_events=of_events)

    async def first(self, command: Mapping[str, Any]) -> Reply:
        """Sends the first command of a find, and stays with the server that answers."""
        reply = await self.run(command)
        self.choose()
        return reply

    async def ask(self, command: Mapping[str, Any]) -> Reply:
        """Sends one to the database ``admin`` of that server, outside of the session."""
        return read_reply(await self._send(command, self._connection.database("admin"), None))

    def choose(self) -> bool:
        """Stays with the server that answered; ``False`` if no server was selected by address."""
        self.pin.chosen = self.pin.address is not None
        return self.pin.chosen

    def kill(self, cursor_id: int, collection: str) -> None:
        """Frees a cursor, in the background; failures are ignored. The id 0 is no cursor."""
        if cursor_id == 0:
            return
        command = {
            "killCursors": collection,
            "cursors": [Int64(cursor_id)],
            "maxTimeMS": COMMAND_MS,
        }
        # Right after a step-down the driver does not know the server: this command can wait.
        self.pin.patient = True

        async def kill() -> None:
            # If PyMongo's asyncio client (4.20) is cancelled while it selects a server, its lock
            # may raise a RuntimeError instead.
            with suppress(DriverError, RuntimeError):
                # Without the session, which may have ended when this runs.
                await self._send(command, self._database, session=None)

        self._connection.in_background(kill, f"kill cursor {cursor_id}")

    async def _send(self, command: Mapping[str, Any], database: Any, session: Any) -> bytes:
        with self._connection.replacing(self._opened), pinned(self.pin), mapped(self.pin):
            reply: RawBSONDocument = await database.command(
                dict(command), read_preference=self.mode, codec_options=RAW, session=session
            )
        return bytes(reply.raw)
