"""Reads one chunk of a collection: the next documents by ``_id``, as of a cluster time.

``{_id: {$gt: x}}`` finds only ids of the type of ``x``. ``$expr`` compares ids of all types in
index order and uses the index, even if the collection has a collation. On a clustered collection
``$expr`` uses no index, so ``min`` and ``max`` (exclusive) bound the scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from tailrace.event.bson import encoded
from tailrace.event.document_key import compare_with
from tailrace.event.reply import Reply
from tailrace.event.snapshot_events import document_id
from tailrace.model.snapshot import DocumentId, RangeProgress
from tailrace.snapshot.limits import ChunkLimit
from tailrace.snapshot.server import Find, SnapshotServer

_COUNT_MS = 10_000
"""The server may spend this many ms on a count, which is needed once for a range after a crash."""
_MOST_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive documents of a range.

    ``scanned`` documents were read to find them; the last one read has the ``_id`` ``last``
    (``None`` if it has not moved). ``ends`` is true if this is the range's last chunk.
    """

    replies: Sequence[Reply]
    last: DocumentId | None
    scanned: int
    ends: bool

    @property
    def documents(self) -> int:
        """The number of documents."""
        return sum(map(len, self.replies))

    @property
    def raw_documents(self) -> Sequence[bytes]:
        """The documents as BSON."""
        return [raw for reply in self.replies for raw in reply.documents()]

    def id_of(self, index: int) -> DocumentId:
        """The ``_id`` of the document at this index."""
        for found in self.replies:
            if index < len(found):
                return DocumentId(encoded(document_id(found.buffer, found.bounds[2 * index])))
            index -= len(found)
        raise IndexError(index)

    def followed_by(self, next: Chunk) -> Chunk:
        """This chunk and the next one of its range as one."""
        scanned = self.scanned + next.scanned
        return Chunk((*self.replies, *next.replies), next.last or self.last, scanned, next.ends)

    @property
    def size(self) -> int:
        """The documents' size in raw bytes."""
        return sum(found.bounds[-1] - found.bounds[0] for found in self.replies if found.bounds)


async def read_chunk(
    server: SnapshotServer,
    of: RangeProgress,
    time: Timestamp,
    limit: ChunkLimit,
    *,
    matching: Mapping[str, Any] | None = None,
    read_preference: str | None = None,
    keys_only: bool = False,
    most_bytes: int = _MOST_BYTES,
) -> Chunk:
    """Scans the next documents of a range up to a ``limit``, and returns the ``matching`` ones.

    ``keys_only``: of each document, only its ``_id``. The chunk ends with the reply with which it
    has ``most_bytes``, even if that is fewer documents than asked for. Raises
    :class:`tailrace.errors.DriverError`.
    """
    shown, most = {"projection": {"_id": 1}} if keys_only else {}, limit.documents

    def wanted(**command: Any) -> Find:
        # Without batchSize, the first reply has 101 documents, and the rest need a second reply.
        ms = limit.ms if matching is None else max(limit.ms // 2, 1)
        fields = {"sort": {"_id": 1}, "hint": {"_id": 1}, "batchSize": most, "maxTimeMS": ms}
        uuid = bytes.fromhex(of.uuid)
        return Find(
            of.database, of.collection, uuid, time, fields | command, read_preference, most_bytes
        )

    conditions = [compare_with("$gt", of.last.raw)] if of.last is not None else []
    if of.until is not None:
        conditions.append(compare_with("$lte", of.until.raw))
    edges = {"min": RawBSONDocument(of.last.raw)} if of.clustered and of.last is not None else {}
    if matching is None:
        replies = await server.find(wanted(filter=_all(conditions), limit=most, **edges, **shown))
        count = sum(map(len, replies))
        ends = count < most and not _cut_short(replies)
        return Chunk(replies, _last(replies), count, ends=ends)
    # It is unknown how many documents must be scanned to find ``most`` that match, so the chunk
    # ends after ``most`` scanned documents.
    find = wanted(
        filter=_all(conditions),
        skip=most - 1,
        limit=2 if of.clustered else 1,
        projection={"_id": 1},
        **edges,
    )
    bounds = _ids(await server.find(find))
    last = bounds[0] if bounds else None
    if last is not None:
        conditions.append(compare_with("$lte", last.raw))
    if len(bounds) == 2:
        edges["max"] = RawBSONDocument(bounds[1].raw)
    replies = await server.find(wanted(filter=_all([*conditions, matching]), **edges, **shown))
    if _cut_short(replies):
        return Chunk(replies, _last(replies), sum(map(len, replies)), ends=False)
    scanned = most
    if last is None:  # fewer than ``most`` are left: use the estimate of how many
        scanned = min(most, max(of.estimate - of.scanned, sum(map(len, replies))))
    return Chunk(replies, last or _last(replies), scanned, ends=last is None)


async def count_up_to(
    server: SnapshotServer,
    of: RangeProgress,
    upto: DocumentId,
    time: Timestamp,
    most: int,
    *,
    matching: Mapping[str, Any] | None = None,
) -> int:
    """How many of the next ``most`` ``matching`` documents of a range are not after ``upto``."""
    conditions = [compare_with("$gt", of.last.raw)] if of.last is not None else []
    conditions.append(compare_with("$lte", upto.raw))
    conditions += [matching] if matching is not None else []
    command: dict[str, Any] = {"filter": _all(conditions), "sort": {"_id": 1}, "hint": {"_id": 1}}
    command |= {"projection": {"_id": 1}, "limit": most, "maxTimeMS": _COUNT_MS}
    uuid = bytes.fromhex(of.uuid)
    if of.clustered:
        edge = {**command, "filter": {}, "limit": 2, "min": RawBSONDocument(upto.raw)}
        later = _ids(await server.find(Find(of.database, of.collection, uuid, time, edge)))
        if later and later[-1] != upto:
            command["max"] = RawBSONDocument(later[-1].raw)
        if of.last is not None:
            command["min"] = RawBSONDocument(of.last.raw)
    replies = await server.find(Find(of.database, of.collection, uuid, time, command))
    return sum(map(len, replies))


def _cut_short(replies: Sequence[Reply]) -> bool:
    return bool(replies[-1].cursor_id)


def _all(conditions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return {"$and": conditions} if conditions else {}


def _ids(replies: Sequence[Reply]) -> list[DocumentId]:
    return [
        DocumentId(encoded(document_id(found.buffer, begin)))
        for found in replies
        for begin in found.bounds[::2]
    ]


def _last(replies: Sequence[Reply]) -> DocumentId | None:
    for found in reversed(replies):
        if found.bounds:
            return DocumentId(encoded(document_id(found.buffer, found.bounds[-2])))
    return None
