"""A change stream's cursor as plain commands: ``aggregate``, ``getMore``, ``killCursors``."""

from typing import Any

import anyio
from bson.int64 import Int64
from pymongo.read_preferences import Nearest
from pymongo.topology_description import TopologyDescription

from tailrace.drivers.connection import COMMAND_MS, Connection
from tailrace.drivers.pinned_commands import PinnedCommands
from tailrace.drivers.pinning import unsuitable
from tailrace.drivers.reads import Read
from tailrace.errors import CommandFailed, ConnectionFailed, DriverError
from tailrace.event.reply import Reply
from tailrace.stream import AtWork, CursorRequest

OPEN_SECONDS = 100.0
"""How long opening a cursor may take: server selection, the server's time limit, the network. If it
takes longer, the connection hangs."""
COMMENTS_SINCE = 9
"""The wire version (server 4.4) from which getMore takes a comment (specification, "comment")."""
_AWAIT_MS = 1000  # mongod, awaitDataState: how long a getMore waits without maxTimeMS


class PinnedCursor:
    """The ``Cursor`` port: a change stream's cursor on the server that opened it."""

    def __init__(
        self, connection: Connection, session: Any, request: CursorRequest, at_work: AtWork
    ) -> None:
        self._connection = connection
        self._request = request
        self._at_work = at_work
        self._get_more = dict(request.get_more)
        self._await_seconds = request.get_more.get("maxTimeMS", _AWAIT_MS) / 1000
        self._wanted = connection.read_preference(request.read_preference)
        self._commands = PinnedCommands(connection, session, request.database, self._wanted)
        self._pin = self._commands.pin
        self._topology: TopologyDescription | None = None
        self._first: Reply | None = None
        self._id = 0
        self._collection = ""

    async def open(self) -> None:
        """Selects the server and runs the aggregate there."""
        aggregate = {**self._request.aggregate, **self._connection.read_concern}
        with anyio.move_on_after(OPEN_SECONDS) as patience:
            self._first = self._noted(await self._commands.first(aggregate, of_events=True))
        if patience.cancelled_caught:
            raise ConnectionFailed(
                f"{self._pin.address or 'the server'} has not answered an aggregate for "
                f"{OPEN_SECONDS:.0f} s"
            )
        if not self._pin.chosen:  # a direct connection: no selector is called
            servers = self._connection.topology.server_descriptions().values()
            self._pin.wire_version = max((each.max_wire_version for each in servers), default=0)
        if self._pin.wire_version < COMMENTS_SINCE:
            self._get_more.pop("comment", None)
        self._commands.mode = Nearest()  # reaches the cursor's server, whatever its role is now

    @property
    def member(self) -> str:
        """The address of its server; empty for a direct connection."""
        return "" if self._pin.address is None else "{}:{}".format(*self._pin.address)

    @property
    def first(self) -> Reply:
        """The aggregate's own reply, which is released when the cursor is read."""
        if self._first is None:
            raise ConnectionFailed("the cursor has been read")
        return self._first

    async def next_batch(self, await_ms: int | None = None, most: int | None = None) -> Reply:
        """One ``getMore`` on the cursor's server, if it still suits the read preference."""
        if self._id == 0:
            raise ConnectionFailed("the cursor is closed")
        self._first = None
        topology = self._connection.topology
        if topology is not self._topology:
            if failure := unsuitable(topology, self._pin, self._wanted):
                raise failure
            self._topology = topology
        command = {"getMore": Int64(self._id), "collection": self._collection, **self._get_more}
        await_seconds = self._await_seconds
        if await_ms is not None:
            command["maxTimeMS"] = await_ms
            await_seconds = max(await_seconds, await_ms / 1000)
        if most is not None:
            command["batchSize"] = most
        read = Read(self._pin, self._wanted, self._ask, await_seconds)
        reply = self._commands.run(command, of_events=True)
        return self._noted(await self._connection.reads.watched(read, reply))

    def kill(self) -> None:
        """Frees the cursor on its server, in the background; failures are ignored."""
        self._commands.kill(self._id, self._collection)
        self._id = 0

    async def _ask(self, read: Read) -> None:
        """Asks the cursor's server, on another connection, whether it works on the read.

        Users need no privilege to see their own operations. A refusal counts as an answer.
        """
        command = {
            "aggregate": 1,
            "pipeline": [
                {"$currentOp": {"localOps": True}},
                {"$match": {"command.getMore": Int64(self._id)}},
                {"$limit": 1},
                {"$project": {"opid": 1}},
            ],
            "cursor": {},
            "maxTimeMS": COMMAND_MS,
        }
        try:
            answer = await self._commands.ask(command)
            has_events, time = bool(answer.bounds), answer.operation_time
        except CommandFailed:
            has_events, time = True, None
        except (DriverError, RuntimeError):  # no answer; as in PinnedCommands.kill
            return
        if has_events and not read.over:
            self._at_work(time)

    def _noted(self, reply: Reply) -> Reply:
        self._id, self._collection = reply.cursor_id, reply.collection
        return reply
