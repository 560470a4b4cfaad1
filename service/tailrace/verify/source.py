"""What a verification reads of the source: keys, documents as of a moment, and what changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from tailrace.engine import ScopePlan
from tailrace.errors import CommandFailed, ConnectionFailed, StreamError
from tailrace.event import ChangeEvent
from tailrace.event.document_key import identity
from tailrace.event.reply import Reply
from tailrace.event.snapshot_events import ReadEvents
from tailrace.event.wanted_documents import filter_of
from tailrace.model import StartPoint
from tailrace.model.snapshot import DocumentId, RangeProgress
from tailrace.model.verification import ComparedCollection
from tailrace.snapshot.chunk import Chunk, read_chunk
from tailrace.snapshot.limits import ChunkLimit
from tailrace.snapshot.server import Find, SnapshotServer
from tailrace.stream import ChangeStream, ChangeStreamOptions, Driver
from tailrace.stream.server_clock import server_time
from tailrace.verify.window import Reached

MOST_BYTES = 4 * 1024 * 1024
"""Documents are read up to this size, and to the end of the reply with which they reach it."""
_SEEN = {"_id": 1, "operationType": 1, "ns": 1, "documentKey": 1, "clusterTime": 1}
_OF_DOCUMENTS = frozenset({"insert", "update", "replace", "delete"})


class SourceServer(SnapshotServer, Driver, Protocol):
    """The port to the server."""


@dataclass(frozen=True, slots=True)
class SourceDocuments:
    """Documents as events ``read``, by the identity of their ``_id``.

    ``whole``: whether all that were asked for are there; else, those after some are not.
    """

    events: Mapping[bytes, ChangeEvent]
    whole: bool
    size: int


@dataclass(frozen=True, slots=True)
class Source:
    """The collections of a scope. ``of_now`` and ``plan``: the server, and how the scope
    is followed, which a reload may replace."""

    of_now: Callable[[], SourceServer]
    plan: Callable[[], ScopePlan]

    @property
    def server(self) -> SourceServer:
        """The server as it is reached now."""
        return self.of_now()

    async def now(self) -> Timestamp:
        """The time of the server's last write."""
        if (time := await server_time(self.server)) is None:
            raise ConnectionFailed("the server does not tell its time")
        return time

    async def keys(
        self,
        of: ComparedCollection,
        time: Timestamp,
        limit: ChunkLimit,
        matching: Mapping[str, Any] | None,
    ) -> Chunk:
        """The keys of the next documents after ``of.last``, scanning at most ``limit`` of them."""
        return await read_chunk(
            self.server, _range(of), time, limit, matching=matching, keys_only=True
        )

    async def chunk(
        self,
        of: ComparedCollection,
        time: Timestamp,
        limit: ChunkLimit,
        matching: Mapping[str, Any] | None,
    ) -> Chunk:
        """The next documents after ``of.last``, scanning at most ``limit`` of them."""
        return await read_chunk(
            self.server, _range(of), time, limit, matching=matching, most_bytes=MOST_BYTES
        )

    async def documents_up_to(
        self, of: ComparedCollection, until: DocumentId, time: Timestamp, limit: ChunkLimit
    ) -> SourceDocuments:
        """At most ``limit`` documents after ``of.last`` and up to ``until``."""
        part = replace(_range(of), until=until)
        chunk = await read_chunk(self.server, part, time, limit, most_bytes=MOST_BYTES)
        return _documents(of, chunk.replies, time, whole=chunk.ends)

    async def documents(
        self, of: ComparedCollection, keys: Sequence[DocumentId], time: Timestamp
    ) -> SourceDocuments:
        """The documents with these keys."""
        replies = await self._find(of, keys, time, {})
        return _documents(of, replies, time, whole=not (replies and replies[-1].cursor_id))

    async def existing(
        self, of: ComparedCollection, keys: Sequence[DocumentId], time: Timestamp
    ) -> Mapping[bytes, DocumentId]:
        """Those of some keys that have documents, by identity, as the documents have them."""
        replies = await self._find(of, keys, time, {"projection": {"_id": 1}})
        found = [key for reply in replies for key in _ids(reply)]
        return dict(zip(identities(found), found, strict=True))

    async def without_documents(
        self, of: ComparedCollection, keys: Sequence[DocumentId], time: Timestamp
    ) -> Sequence[DocumentId]:
        """Those of some keys that have no documents."""
        replies = await self._find(of, keys, time, {"projection": {"_id": 1}})
        there = {raw for reply in replies for raw in reply.documents()}
        absent = [key for key in keys if key.raw not in there]
        if not absent:  # else a document may have it as another type of number
            return absent
        existing = {identity(raw, 0) for raw in there}
        return [key for key in absent if identity(key.raw, 0) not in existing]

    async def _find(
        self,
        of: ComparedCollection,
        keys: Sequence[DocumentId],
        time: Timestamp,
        command: Mapping[str, Any],
    ) -> Sequence[Reply]:
        wanted = RawBSONDocument(filter_of(key.raw for key in keys))
        fields = {"filter": wanted, "batchSize": len(keys) + 1, **command}
        uuid = bytes.fromhex(of.uuid)
        find = Find(of.database, of.collection, uuid, time, fields, most_bytes=MOST_BYTES)
        return await self.server.find(find)

    async def touched(
        self, of: ComparedCollection, keys: Sequence[DocumentId], reached: Reached, high: Timestamp
    ) -> set[bytes] | None:
        """The identities of those keys whose documents a change touched after what is ``reached``
        and up to ``high``; ``None`` if all of them count as touched, as by a rename.

        Raises :class:`tailrace.errors.DriverError`.
        """
        try:
            return await self._touched(of, keys, reached.start, high)
        except StreamError:  # an event ends the stream: the scope's collection is gone
            return None
        except CommandFailed:  # as of a token within a large event that this stream does not split
            start = StartPoint(at_operation_time=reached.time)
            if start == reached.start:
                raise
            return await self._touched(of, keys, start, high)

    async def _touched(
        self, of: ComparedCollection, keys: Sequence[DocumentId], start: StartPoint, high: Timestamp
    ) -> set[bytes] | None:
        wanted, touched, replies = {identity(key.raw, 0) for key in keys}, set[bytes](), 0
        plan = self.plan()
        options = ChangeStreamOptions(
            pipeline=({"$match": _about(of)}, {"$project": _SEEN}),
            show_expanded_events=plan.options.show_expanded_events,
            collation=plan.options.collation,
            comment="tailrace verify",
            read_preference=plan.options.read_preference,
        )
        async with ChangeStream(self.server, plan.scope, options, start) as stream:
            while True:
                batch = await stream.next_batch(wait=False)
                replies += 1
                for event in batch.events():
                    if event.cluster_time is not None and event.cluster_time > high:
                        return touched
                    if event.operation_type not in _OF_DOCUMENTS:
                        return None
                    touched |= wanted & {element(event)}
                if stream.invalidated:
                    return None
                reached = batch.token.cluster_time if batch.token is not None else None
                # The first reply comes before the server has searched: its token may be our own.
                over = reached == high and replies > 1 and not len(batch)
                if over or (reached is not None and reached > high):
                    return touched


def _about(of: ComparedCollection) -> Mapping[str, Any]:
    """What selects the changes of a collection and its documents."""
    namespace = {"db": of.database, "coll": of.collection}
    ends = {"operationType": {"$in": ["dropDatabase", "invalidate"]}}
    return {"$or": [{"ns": namespace}, {"to": namespace}, ends]}


def element(event: ChangeEvent) -> bytes:
    """The identity of an event's document in its collection."""
    key = event.field_bytes("documentKey")
    return identity(key, 0) if key is not None else b""


def ids_of(chunk: Chunk) -> list[DocumentId]:
    """The keys in a chunk that was read with ``keys_only``."""
    return [key for reply in chunk.replies for key in _ids(reply)]


def _ids(reply: Reply) -> list[DocumentId]:
    return [DocumentId(raw) for raw in reply.documents()]


def identities(keys: Collection[DocumentId]) -> list[bytes]:
    """The identity of each key: equal for values that the server treats as equal."""
    return [identity(key.raw, 0) for key in keys]


def _documents(
    of: ComparedCollection, replies: Sequence[Reply], time: Timestamp, *, whole: bool
) -> SourceDocuments:
    batch = ReadEvents("verify", of.uuid, of.database, of.collection).batch(replies, time)
    document_ids = [
        identity(reply.buffer, begin) for reply in replies for begin in reply.bounds[::2]
    ]
    return SourceDocuments(dict(zip(document_ids, batch.events(), strict=True)), whole, batch.size)


def _range(of: ComparedCollection) -> RangeProgress:
    return RangeProgress(
        of.uuid, of.database, of.collection, of.estimate, of.clustered, last=of.last
    )
