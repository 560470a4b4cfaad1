"""What both adapters share: commands on a client, and the sessions that cursors are opened in.

Motor's client and PyMongo's asynchronous one have the same ``command`` method, so an adapter adds
only how its client is made, starts a session and closes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import make_read_preference, read_pref_mode_from_name
from pymongo.topology_description import TopologyDescription

from tailrace.drivers.cursor import COMMAND_MS, PinnedCursor
from tailrace.drivers.errors import THEIRS, mapped, ours
from tailrace.drivers.pinning import Pin, Pinned
from tailrace.drivers.reads import Reads
from tailrace.stream import AtWork, Request

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
KILL_SECONDS = 1.0
"""How long closing a driver waits for the last killCursors, and then for its goodbye."""


class AsyncClient(Protocol):
    """The part of both clients that is used."""

    @property
    def topology_description(self) -> TopologyDescription: ...

    @property
    def read_preference(self) -> Any: ...

    @property
    def read_concern(self) -> ReadConcern: ...

    def __getitem__(self, name: str) -> Any: ...


def _nobody(_: object) -> None:
    return None


class ClientSession:
    """The ``Session`` port. Explicit: implicit sessions of concurrent streams clash."""

    def __init__(self, driver: CommandDriver, session: Any) -> None:
        self._driver = driver
        self._session = session

    async def open(self, request: Request, at_work: AtWork = _nobody) -> PinnedCursor:
        cursor = PinnedCursor(self._driver, self._session, request, at_work)
        await cursor.open()
        return cursor

    async def aclose(self) -> None:
        """Ends it; ending one on a server that is gone is no error."""
        with mapped():
            await self._session.end_session()


class CommandDriver:
    """The ``Driver`` port on a client; an async context manager that owns that client.

    ``close`` ends the client. The task group holds killCursors commands, and who watches the reads.
    """

    def __init__(
        self,
        client: AsyncClient,
        start_session: Callable[[], Awaitable[Any]],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._start_session = start_session
        self._close = close
        self._kills: TaskGroup | None = None
        self._watching = anyio.CancelScope()
        self.reads = Reads(lambda: client.topology_description)

    def read_preference(self, mode: str | None) -> Any:
        """The mode that a scope names, as MongoDB spells it, else that of the URI."""
        if mode is None:
            return self._client.read_preference
        return make_read_preference(read_pref_mode_from_name(mode), None)

    @property
    def read_concern(self) -> Mapping[str, Any]:
        """The field of an aggregate that the URI's ``readConcernLevel`` makes, if it is given.

        The drivers add it to their own aggregates, but not to a command.
        """
        document = self._client.read_concern.document
        return {"readConcern": document} if document else {}

    async def start_session(self) -> ClientSession:
        with mapped():
            return ClientSession(self, await self._start_session())

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """One command on the primary, decoded: for the checkpoint store and for probes."""
        limited = {**command, "maxTimeMS": command.get("maxTimeMS", COMMAND_MS)}
        with mapped():
            reply: dict[str, Any] = await self._client[database].command(limited)
        return reply

    async def run_pinned(
        self, pin: Pin, session: Any, database: Any, command: Mapping[str, Any], mode: Any
    ) -> RawBSONDocument:
        """One command on the pin's server (or on the one that this call chooses), undecoded."""
        with Pinned(pin):
            try:
                reply: RawBSONDocument = await database.command(
                    dict(command), read_preference=mode, codec_options=RAW, session=session
                )
            except THEIRS as error:
                raise ours(error, pin.wire_version) from error
        return reply

    @property
    def topology(self) -> TopologyDescription:
        """What the client's monitors know of the servers; another object after each change."""
        return self._client.topology_description

    def database(self, name: str) -> Any:
        """The client's object for a database, which a cursor keeps: making one is no trifle."""
        return self._client[name]

    def in_background(self, call: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Runs ``call``, unless the driver is closing."""
        if self._kills is not None:
            self._kills.start_soon(call, name=name)

    def wire_version(self) -> int:
        """That of the only server of a direct connection, where no selector is asked."""
        servers = self.topology.server_descriptions().values()
        return max((server.max_wire_version for server in servers), default=0)

    async def __aenter__(self) -> CommandDriver:
        self._kills = await anyio.create_task_group().__aenter__()
        self._kills.start_soon(self._watch, name="reads")
        return self

    async def _watch(self) -> None:
        with self._watching:
            await self.reads.watch()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        kills, self._kills = self._kills, None
        assert kills is not None  # noqa: S101 - for the type checker: __aenter__ set it
        self._watching.cancel()
        try:
            kills.cancel_scope.deadline = anyio.current_time() + KILL_SECONDS
            # Not told of the block's error, the group does not wrap it: it leaves as it is.
            await kills.__aexit__(None, None, None)
        finally:
            for _ in range(2):
                # A second call does not say goodbye to the server once more, it only cleans up.
                with anyio.move_on_after(KILL_SECONDS, shield=True) as patience:
                    await self._close()
                if not patience.cancelled_caught:
                    break
