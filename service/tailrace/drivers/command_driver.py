"""The common part of both adapters. Each adapter adds how to create and close its client, and how
to start a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import anyio

from tailrace.drivers import finds, lookup, snapshot_find, transactions
from tailrace.drivers.connection import COMMAND_MS, Connection, DriverClient, mapped
from tailrace.drivers.cursor import PinnedCursor
from tailrace.drivers.pinned_commands import PinnedCommands
from tailrace.errors import ConnectionFailed, DriverError
from tailrace.event.reply import Reply
from tailrace.snapshot.server import Find
from tailrace.stream import AtWork, CursorRequest, LookUp

T = TypeVar("T")

KILL_SECONDS = 1.0
"""How long the closing of a driver waits for the last killCursors, and then for endSessions."""


class ClientSession:
    """The ``Session`` port. Sessions are explicit: implicit ones of concurrent streams clash."""

    def __init__(self, connection: Connection, session: Any) -> None:
        self._connection = connection
        self._session = session

    async def open(self, request: CursorRequest, at_work: AtWork = lambda _: None) -> PinnedCursor:
        cursor = PinnedCursor(self._connection, self._session, request, at_work)
        await cursor.open()
        return cursor

    async def aclose(self) -> None:
        """Ends the session; a server that is gone is not an error."""
        with mapped():
            await self._session.end_session()


class CommandDriver(Connection):
    """Implements the ports ``Driver`` and ``SnapshotServer`` with a client.

    It is an async context manager that owns the client.
    """

    def __init__(self, open_client: Callable[[], DriverClient]) -> None:
        super().__init__(open_client)
        self._watching = anyio.CancelScope()
        self._spare_sessions: list[tuple[DriverClient, Any]] = []
        """Sessions of earlier finds: starting and ending one costs as much as a small find."""

    async def start_session(self) -> ClientSession:
        with mapped():
            return ClientSession(self, await self.opened.start_session())

    async def first_batch(self, database: str, command: Mapping[str, Any]) -> Reply:
        """The first documents of a command's cursor, undecoded, from the primary."""
        commands = PinnedCommands(self, None, database, self.read_preference("primary"))
        reply = await commands.first({**command, "maxTimeMS": COMMAND_MS})
        commands.kill(reply.cursor_id, reply.collection)
        return reply

    async def find(self, wanted: Find) -> list[Reply]:
        """Reads documents as of a time."""
        return await self._in_session(lambda session: snapshot_find.find(self, session, wanted))

    async def look_up(self, wanted: LookUp) -> Reply:
        """Reads documents not older than a time."""
        return await self._in_session(lambda session: lookup.look_up(self, session, wanted))

    async def transact(self, database: str, commands: Sequence[Mapping[str, Any]]) -> None:
        """Runs writes in one transaction, with the write concern majority."""
        await self._in_session(
            lambda session: transactions.commit(self, session, database, commands)
        )

    async def _in_session(self, find: Callable[[Any], Awaitable[T]]) -> T:
        """Calls a find with a session of its own; gives up if the find takes too long."""
        spare, opened = self._spare_sessions, self.opened
        while spare and spare[-1][0] is not opened:
            spare.pop()  # its client was replaced
        with mapped():
            session = spare.pop()[1] if spare else await opened.start_session()
        try:
            with anyio.move_on_after(finds.FIND_SECONDS):
                result = await find(session)
                spare.append((opened, session))
                return result
            raise ConnectionFailed(f"a find has had no answer for {finds.FIND_SECONDS:g} s")
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(DriverError), mapped():
                await session.end_session()
            raise

    async def __aenter__(self) -> CommandDriver:
        self._background = await anyio.create_task_group().__aenter__()
        self._background.start_soon(self._watch, name="reads")
        return self

    async def _watch(self) -> None:
        with self._watching:
            await self.reads.watch()

    async def __aexit__(self, *error: object) -> None:
        background, self._background = self._background, None
        assert background is not None  # noqa: S101 - for the type checker: __aenter__ set it
        self._watching.cancel()
        try:
            for _, session in self._spare_sessions:
                with suppress(DriverError), mapped():
                    await session.end_session()
            background.cancel_scope.deadline = anyio.current_time() + KILL_SECONDS
            # Do not pass the block's error: the group would wrap it.
            await background.__aexit__(None, None, None)
        finally:
            for _ in range(2):
                # The second call only frees resources and sends nothing to the server.
                with anyio.move_on_after(KILL_SECONDS, shield=True) as scope:
                    await self.opened.close()
                if not scope.cancelled_caught:
                    break
