"""One sender for the commands of a cursor: all go to one server, and replies stay undecoded."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument

from tailrace.drivers.connection import COMMAND_MS, Connection, mapped
from tailrace.drivers.pinning import Pin, pinned
from tailrace.errors import ConnectionFailed, DriverError
from tailrace.event.reply import Reply, read_reply

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)

LATE_SECONDS = 30.0
"""How long the reply to a cancelled opening of a cursor is waited for, to close the cursor."""


class PinnedCommands:
    """Sends the commands of one cursor.

    :meth:`first` chooses the server by ``mode``, the read preference; all later ones go there.
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

    async def first(self, command: Mapping[str, Any], *, of_events: bool = False) -> Reply:
        """Sends the command that opens a cursor, and stays with the server that answers.

        If the caller is cancelled, the cursor is freed when the reply comes. Otherwise it would
        stay open at the server for ten minutes (``cursorTimeoutMillis``).
        """
        answered, patience, wanted = anyio.Event(), anyio.CancelScope(), True
        reply: Reply | None = None
        failure: Exception = ConnectionFailed("the driver is closed")

        async def send() -> None:
            nonlocal reply, failure
            try:
                with patience:
                    reply = await self.run(command, of_events=of_events)
                    self.pin.chosen = self.pin.address is not None
            except Exception as error:  # noqa: BLE001 - raised below, if anybody waits
                failure = error
            finally:
                answered.set()
            if reply is not None and not wanted:
                await self._kill(reply.cursor_id, reply.collection)

        if self._connection.in_background(send, "opening of a cursor"):
            try:
                await answered.wait()
            except BaseException:
                wanted = False
                patience.deadline = anyio.current_time() + LATE_SECONDS
                if reply is not None:
                    self.kill(reply.cursor_id, reply.collection)
                raise
        if reply is None:
            raise failure
        return reply

    async def ask(self, command: Mapping[str, Any]) -> Reply:
        """Sends one to the database ``admin`` of that server, outside of the session."""
        return read_reply(await self._send(command, self._connection.database("admin"), None))

    def kill(self, cursor_id: int, collection: str) -> None:
        """Frees a cursor, in the background; failures are ignored. The id 0 is no cursor."""
        if cursor_id:
            kill = partial(self._kill, cursor_id, collection)
            self._connection.in_background(kill, f"kill cursor {cursor_id}")

    async def _kill(self, cursor_id: int, collection: str) -> None:
        command = {
            "killCursors": collection,
            "cursors": [Int64(cursor_id)],
            "maxTimeMS": COMMAND_MS,
        }
        # Right after a step-down the driver does not know the server: this command can wait.
        self.pin.patient = True
        # If PyMongo's asyncio client (4.20) is cancelled while it selects a server, its lock
        # may raise a RuntimeError instead.
        with suppress(DriverError, RuntimeError):
            # Without the session, which may have ended when this runs.
            await self._send(command, self._database, session=None)

    async def _send(self, command: Mapping[str, Any], database: Any, session: Any) -> bytes:
        with self._connection.replacing(self._opened), pinned(self.pin), mapped(self.pin):
            reply: RawBSONDocument = await database.command(
                dict(command), read_preference=self.mode, codec_options=RAW, session=session
            )
        return bytes(reply.raw)
