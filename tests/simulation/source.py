"""The server as one process sees it: the oplog in memory, with elections, errors and lost history.

What a change stream returns comes from :class:`tailrace.testing.stream.MemoryDriver`, which is
compared with a real server by ``tests/contract/test_memory_stream.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import bson
from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed, ConnectionFailed, DriverError
from tailrace.event.reply import Reply
from tailrace.snapshot.server import Find
from tailrace.stream import AtWork, CursorRequest, LookUp
from tailrace.testing.oplog import START, Oplog
from tailrace.testing.snapshot_server import MemorySnapshotServer
from tailrace.testing.stream import MemoryCursor, MemoryDriver
from tailrace.testing.tokens import token_time
from tests.simulation.faults import Failing, Faults, Gate
from tests.simulation.shown_events import ShownEvents

_RESUMABLE = frozenset({"ResumableChangeStreamError"})
_SPLIT = {"$changeStreamSplitLargeEvent": {}}
_WIRE_VERSION = 17
"""Of server 6.0."""


def failed(code: int, name: str, *, resumable: bool = False) -> CommandFailed:
    """An error of the server."""
    labels = _RESUMABLE if resumable else frozenset[str]()
    return CommandFailed(name, code=code, code_name=name, labels=labels, wire_version=_WIRE_VERSION)


@dataclass(eq=False)
class Server:
    """The replica set, which outlives every process."""

    oplog: Oplog
    faults: Faults
    began: float
    """The virtual time of the oplog's beginning."""
    most_streams: int = 1000
    """It refuses to open more."""
    token_version: int = 2
    """Of its resume tokens: an upgrade changes it."""
    refuses_late: bool = False
    """Whether it opens a stream without its history, and refuses the first read, as mongod does."""
    lost: Callable[[str], None] = lambda reason: None
    """Told when it has refused a position, or continues one in another format."""
    first: Timestamp = START
    """The oldest time that the oplog has."""
    term: int = 0
    """Grows with each election."""
    silent_until: float = 0.0
    streams: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def elect(self, seconds: float) -> None:
        """Another member becomes primary after this time; until then nobody answers."""
        self.term += 1
        self.silent_until = anyio.current_time() + seconds
        self.counts["elections"] += 1
        self.oplog.wake()

    def upgrade(self) -> None:
        """From now on its tokens have the newer format; it was the last member with the old one."""
        self.token_version = 2
        self.elect(1.0)
        self.counts["upgrades"] += 1

    def forget(self, until: Timestamp) -> None:
        """The oplog loses its changes before this time."""
        self.first = max(self.first, until)
        self.counts["cuts of the oplog"] += 1

    def set_time(self) -> None:
        """Moves the cluster time with the virtual time; within a transaction it stays."""
        seconds = int(anyio.current_time() - self.began) + START.time - self.oplog.now.time
        if seconds > 0 and self.oplog.transaction is None:
            self.oplog.tick(seconds)

    async def time(self) -> Timestamp | None:
        """The server's time."""
        self.set_time()
        return self.oplog.now

    def require_history(self, time: Timestamp | None) -> None:
        """Raises the server's error if the oplog does not reach back to this time."""
        if time is not None and time < self.first:
            self.counts["positions without history"] += 1
            self.lost("a lost history")
            raise failed(286, "ChangeStreamHistoryLost")

    def require_primary(self) -> None:
        """Raises an error while there is no primary."""
        if anyio.current_time() < self.silent_until:
            raise ConnectionFailed("no primary")


@dataclass(frozen=True, slots=True)
class SimulatedDriver:
    """A :class:`tailrace.stream.Driver` of one process."""

    server: Server
    gate: Gate

    async def start_session(self) -> SimulatedSession:
        self.gate.require()
        return SimulatedSession(self.server, self.gate)

    async def look_up(self, wanted: LookUp) -> Reply:
        try:
            await self.server.faults.before()
        except Failing:
            raise ConnectionFailed("the connection was closed") from None
        self.server.require_primary()
        self.gate.require()
        return await MemoryDriver(self.server.oplog).look_up(wanted)


@dataclass(frozen=True, slots=True)
class SimulatedSession:
    """A session of one process."""

    server: Server
    gate: Gate

    async def open(self, request: CursorRequest, at_work: AtWork) -> SimulatedCursor:
        server = self.server
        try:
            await server.faults.before()
        except Failing:
            raise _failure_of_open(server) from None
        self.gate.require()
        server.require_primary()
        server.set_time()
        stage, *more = request.aggregate["pipeline"]
        stage = stage["$changeStream"]
        if not server.refuses_late:
            server.require_history(_start_time(stage))
        if server.streams >= server.most_streams:
            server.counts["streams refused"] += 1
            raise failed(365, "TemporarilyUnavailable")
        splits = _SPLIT in more
        shown = ShownEvents(stage, server.token_version, splits=splits)
        aggregate = {
            **request.aggregate,
            "pipeline": [{"$changeStream": shown.stage}, *(s for s in more if s != _SPLIT)],
        }
        session = await MemoryDriver(server.oplog).start_session()
        inner = await session.open(replace(request, aggregate=aggregate), at_work)
        if shown.is_older or (server.counts["upgrades"] and "startAtOperationTime" in stage):
            server.lost("tokens from before an upgrade")
        server.counts["resumes within a split event"] += shown.begins_within
        return SimulatedCursor(server, self.gate, inner, request, shown)

    async def aclose(self) -> None:
        pass


class SimulatedCursor:
    """A cursor on the primary of one term."""

    def __init__(
        self,
        server: Server,
        gate: Gate,
        inner: MemoryCursor,
        request: CursorRequest,
        shown: ShownEvents,
    ) -> None:
        self._server = server
        self._gate = gate
        self._inner = inner
        self._term = server.term
        self._wait = request.get_more.get("maxTimeMS", 1000)
        self._killed = self._has_read = False
        self._at = _start_time(request.aggregate["pipeline"][0]["$changeStream"])
        self._shown = shown
        self._most = request.get_more.get("batchSize")
        self.first = shown.first(inner.first)
        self.member = f"db{server.term}:27017"
        server.streams += 1

    async def next_batch(self, await_ms: int | None = None, most: int | None = None) -> Reply:
        server, wait = self._server, self._wait if await_ms is None else await_ms
        try:
            await server.faults.before()
            await self._require()
            reply = await self._next(most)
            if not reply.bounds and not reply.closed:
                grown = server.oplog.grown
                with anyio.move_on_after(wait / 1000):
                    await grown.wait()
                await self._require()
                reply = await self._next(most)
            await server.faults.after()
        except Failing:
            self.kill()
            raise _failure_of_read(server) from None
        except BaseException:
            self.kill()
            raise
        self._gate.require()
        self._has_read = True
        if reply.post_batch_token is not None:
            self._at = reply.post_batch_token.cluster_time
        return reply

    async def _next(self, most: int | None) -> Reply:
        shown = self._shown
        reply = None if shown.waits else await self._inner.next_batch(0, most)
        return shown.next(reply, self._most if most is None else most)

    def kill(self) -> None:
        if not self._killed:
            self._killed = True
            self._server.streams -= 1
            self._inner.kill()

    async def _require(self) -> None:
        server = self._server
        self._gate.require()
        server.require_primary()
        if self._killed or self._term != server.term:
            raise failed(43, "CursorNotFound")
        if self._has_read and self._at is not None and self._at < server.first:
            raise failed(136, "CappedPositionLost")
        if not self._has_read:
            server.require_history(self._at)
        server.set_time()


@dataclass(frozen=True, slots=True)
class SimulatedSnapshotServer:
    """What snapshots ask of the server, for one process."""

    server: Server
    gate: Gate

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        await self._reach()
        result = await MemorySnapshotServer(self.server.oplog).run(database, command)
        self.gate.require()
        return result

    async def first_batch(self, database: str, command: Mapping[str, Any]) -> Reply:
        await self._reach()
        return await MemorySnapshotServer(self.server.oplog).first_batch(database, command)

    async def find(self, find: Find) -> Sequence[Reply]:
        await self._reach()
        found = await MemorySnapshotServer(self.server.oplog).find(find)
        await self.server.faults.delay()
        self.gate.require()
        return found

    async def _reach(self) -> None:
        try:
            await self.server.faults.before()
        except Failing:
            raise _failure_of_read(self.server) from None
        self.gate.require()
        self.server.require_primary()
        self.server.set_time()


def _start_time(stage: Any) -> Timestamp | None:
    if "startAtOperationTime" in stage:
        time: Timestamp = stage["startAtOperationTime"]
        return time
    for option in ("resumeAfter", "startAfter"):
        if option in stage:
            return token_time(bson.decode(bson.encode(stage[option])))
    return None


def _failure_of_open(server: Server) -> DriverError:
    return server.faults.random.choice(
        [
            ConnectionFailed("no server answered"),
            failed(189, "PrimarySteppedDown", resumable=True),
            failed(13, "Unauthorized"),
            failed(50, "MaxTimeMSExpired"),
        ]
    )


def _failure_of_read(server: Server) -> DriverError:
    return server.faults.random.choice(
        [
            ConnectionFailed("the connection was closed"),
            failed(43, "CursorNotFound"),
            failed(10107, "NotWritablePrimary", resumable=True),
            failed(11600, "InterruptedAtShutdown", resumable=True),
            failed(11601, "Interrupted"),
            failed(237, "CursorKilled"),
        ]
    )
