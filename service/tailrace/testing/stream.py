"""A driver on an oplog in memory, which answers a change stream as mongod would.

It is a :class:`tailrace.stream.Driver` without a network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import bson
from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed
from tailrace.event import Namespace
from tailrace.event.reply import Reply, read_reply
from tailrace.stream import AtWork, CursorRequest, LookUp
from tailrace.testing.changes import invalidated
from tailrace.testing.entry import EXPANDED, OF_DOCUMENTS, Entry, Shown
from tailrace.testing.oplog import Oplog
from tailrace.testing.tokens import high_water_token

REPLY_EVENTS = 1000
"""The most events in a reply, unless the stream asks for fewer."""
_AWAIT_SECONDS = 0.02
"""How long a read waits for a change: a stop must not wait for it."""


@dataclass(frozen=True, slots=True)
class MemoryDriver:
    """Streams and look-ups of one oplog."""

    oplog: Oplog

    async def start_session(self) -> MemorySession:
        return MemorySession(self.oplog)

    async def look_up(self, wanted: LookUp) -> Reply:
        filter = bson.decode(wanted.filter)
        choices = [each["_id"] for each in filter.get("$or", [filter])]
        ids = [id for each in choices for id in (each["$in"] if "$in" in each else [each["$eq"]])]
        keys = {bson.encode({"_id": id}) for id in ids}
        of = [
            each
            for each in self.oplog.collections.values()
            if each.uuid == wanted.uuid
            or (wanted.uuid is None and each.ns == Namespace(wanted.database, wanted.collection))
        ]
        return found([raw for each in of for key, raw in each.at() if key in keys])


def found(documents: Sequence[bytes]) -> Reply:
    """A reply to ``find`` with these documents."""
    cursor = {"firstBatch": [bson.decode(raw) for raw in documents], "id": 0}
    return read_reply(bson.encode({"cursor": cursor}))


def reply_of(events: Sequence[bytes], mark: str, cursor: int, now: Timestamp | None) -> Reply:
    """The reply to a ``getMore`` as the server encodes it. ``mark``: its post-batch token; a
    ``cursor`` that is 0 is closed."""
    array = b"".join(b"\x03%d\0%b" % pair for pair in enumerate(events))
    batch = (len(array) + 5).to_bytes(4, "little") + array + b"\0"
    rest = bson.encode({"id": cursor, "postBatchResumeToken": {"_data": mark}})
    body = rest[4:-1] + b"\x04nextBatch\0" + batch
    time = bson.encode({"operationTime": now})[4:-1]
    whole = b"\x03cursor\0" + (len(body) + 5).to_bytes(4, "little") + body + b"\0" + time
    return read_reply((len(whole) + 5).to_bytes(4, "little") + whole + b"\0", of_events=True)


@dataclass(frozen=True, slots=True)
class MemorySession:
    """A session of a :class:`MemoryDriver`; it holds nothing."""

    oplog: Oplog

    async def open(self, request: CursorRequest, at_work: AtWork) -> MemoryCursor:
        await anyio.lowlevel.checkpoint()
        stage, *pipeline = request.aggregate["pipeline"]
        if pipeline:
            raise CommandFailed("the stream in memory runs no pipeline", code=40324)
        return MemoryCursor(self.oplog, request, stage["$changeStream"])

    async def aclose(self) -> None:
        pass


class MemoryCursor:
    """A cursor of one stream: the changes of its scope from its start on."""

    member = ""

    def __init__(self, oplog: Oplog, request: CursorRequest, stage: Mapping[str, Any]) -> None:
        self._oplog = oplog
        self._shown = Shown.of_stage(stage)
        collection = request.aggregate["aggregate"]
        self._cluster = "allChangesForCluster" in stage
        self._database = request.database
        self._collection = collection if isinstance(collection, str) else None
        self._most = request.get_more.get("batchSize", REPLY_EVENTS)
        self._closed = False
        self._invalidate: Entry | None = None
        """What comes before the entry at :attr:`_at`."""
        self._at, self._token = self._start(stage)
        self.first = self._reply([])

    async def next_batch(self, await_ms: int | None = None, most: int | None = None) -> Reply:
        await anyio.lowlevel.checkpoint()
        self._most = self._most if most is None else most
        if self._closed:
            raise CommandFailed("no such cursor", code=43, code_name="CursorNotFound")
        entries = list(self._next())
        # A stream that is idle for long says itself how long a read may wait.
        wait = _AWAIT_SECONDS if await_ms is None else min(await_ms / 1000, _AWAIT_SECONDS)
        if wait and not entries and self._token >= self._end:
            grown = self._oplog.grown
            with anyio.move_on_after(wait):
                await grown.wait()
            entries = list(self._next())
        self._token = entries[-1].token if entries else max(self._token, self._end)
        return self._reply(entries)

    def kill(self) -> None:
        self._closed = True

    @property
    def _end(self) -> str:
        """The token of a stream that has seen every change: later than the last one."""
        oplog = self._oplog
        if oplog.entries and oplog.entries[-1].time == oplog.now and oplog.transaction is None:
            oplog.tick()  # mongod writes a no-op every ten seconds
        return high_water_token(self._oplog.now)["_data"]

    def _start(self, stage: Mapping[str, Any]) -> tuple[int, str]:
        """The index of the first change, and the token of the aggregate's own reply."""
        oplog = self._oplog
        if "startAtOperationTime" in stage:
            time = stage["startAtOperationTime"]
            return oplog.since(time), high_water_token(time)["_data"]
        for option in ("resumeAfter", "startAfter"):
            if option in stage:
                token = bson.decode(bson.encode(stage[option]))["_data"]
                at = oplog.after(token)
                if at and self._ends(last := oplog.entries[at - 1]):
                    if token == last.token:
                        self._invalidate = invalidated(last)
                    elif option == "resumeAfter" and token == invalidated(last).token:
                        raise CommandFailed(
                            "an invalidate's token", code=260, code_name="InvalidResumeToken"
                        )
                return at, token
        oplog.tick()  # mongod opens one tick ahead of its time
        return oplog.end, self._end

    def _next(self) -> Iterator[Entry]:
        """The entries of the next reply."""
        count, oplog = 0, self._oplog
        while not self._closed and count < self._most:
            if self._invalidate is not None:
                yield self._invalidate
                self._invalidate, self._closed = None, True
            elif self._at < oplog.end:
                entry = oplog.entries[self._at]
                self._at += 1
                if not self._sees(entry):
                    continue
                yield entry
                if self._ends(entry):
                    self._invalidate = invalidated(entry)
            else:
                return
            count += 1

    def _reply(self, entries: Sequence[Entry]) -> Reply:
        events = [entry.event(self._shown) for entry in entries]
        return reply_of(events, self._token, int(not self._closed), self._oplog.now)

    def _sees(self, entry: Entry) -> bool:
        if entry.operation in EXPANDED and not self._shown.expanded:
            return False
        if self._cluster:
            return True
        names = [entry.ns, *([entry.to] if entry.to is not None else [])]
        return any(ns.db == self._database and self._collection in (None, ns.coll) for ns in names)

    def _ends(self, entry: Entry) -> bool:
        """Whether the stream ends after the entry, with an invalidate."""
        if self._cluster or entry.operation in OF_DOCUMENTS or not self._sees(entry):
            return False
        of_collection = self._collection is not None and entry.operation in ("drop", "rename")
        return of_collection or entry.operation == "dropDatabase"
