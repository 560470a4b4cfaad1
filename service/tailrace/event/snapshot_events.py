"""Events of a snapshot: documents as events of the type ``read``, and the barriers around them.

A document's BSON is not decoded. The fields of its event are built around it, in the order in which
mongod writes the fields of an insert (:mod:`tailrace.event.layout`).

    {_id: {snapshot: ID, collection: UUID, _id: …}, operationType: "read", clusterTime: …,
     fullDocument: …, ns: {db: …, coll: …}, documentKey: {_id: …}}

In a snapshot of keys, one that has no document is an event ``delete``, without ``fullDocument``.
If a collection is read in several ranges, the rows of all ranges but the first also have the number
of their range: ``range``, before the inner ``_id``. The ``_id`` of an event is the same whenever
the document is read for that snapshot.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

import bson
from bson import Binary
from bson.timestamp import Timestamp

from tailrace.event.batch import RawBatch, join
from tailrace.event.bson import (
    DATE,
    EMPTY_DOCUMENT,
    INT32_TYPE,
    INT64_TYPE,
    OBJECT_ID,
    encoded,
    walk,
)
from tailrace.event.change_event import ChangeEvent
from tailrace.event.document_key import identity
from tailrace.event.reply import Reply
from tailrace.model.snapshot import DocumentId, StoredRows

READ = "read"
DELETE = "delete"
"""Of a snapshot of keys: one of the keys has no document."""
SNAPSHOT_BEGIN = "snapshotBegin"
SNAPSHOT_END = "snapshotEnd"

_ID_OF_OBJECT = b"%c_id\0" % OBJECT_ID
_OBJECT_ID_BYTES = len(_ID_OF_OBJECT) + 12
_NAME = b"_id\0"
_SIZES = {OBJECT_ID: _OBJECT_ID_BYTES, INT32_TYPE: 9, INT64_TYPE: 13, DATE: 13}
"""By type, the size of an ``_id`` as an element."""
_OWN_ID, _SNAPSHOT = b"\x03_id\0", b"\x02snapshot\0"
# Where an event names its snapshot, collection and range, which always have the same lengths.
_NAMED, _WITH_RANGE = slice(13, 85), slice(13, 96)
_RANGE = b"\x10range\0"
_length, _length_of = Struct("<i").pack, Struct("<i").unpack_from


def of_snapshot(event: bytes) -> bool:
    """Whether an event belongs to a snapshot, and so is no position of the stream."""
    return event.startswith(_OWN_ID, 4) and event.startswith(_SNAPSHOT, 4 + len(_OWN_ID) + 4)


class LastRows:
    """Notes the last row of each range that a destination takes, and the end."""

    def __init__(self) -> None:
        self._last: dict[bytes, bytes] = {}

    def note(self, event: bytes) -> None:
        """Notes an event of a snapshot."""
        ranged = event.startswith(_RANGE, _NAMED.stop)
        self._last[event[_WITH_RANGE if ranged else _NAMED]] = event

    def stored(self) -> StoredRows | None:
        """What the destination has then; if there were two snapshots, of the later one."""
        found: StoredRows | None = None
        for event in self._last.values():
            at = 4 + len(_OWN_ID)
            own = StoredRows.up_to(event[at : at + _length_of(event, at)[0]])
            found = own.merged(found) if own is not None else found
        return found


class ReadEvents:
    """Makes the events of a range's documents, for the snapshot ``snapshot``.

    ``name`` is the range's: ``UUID``, or ``UUID/N`` for a further range of the collection.
    """

    def __init__(self, snapshot: str, name: str, database: str, collection: str) -> None:
        uuid, _, number = name.partition("/")
        of_range = {"range": int(number)} if number else {}
        self._identity = _elements(
            {"snapshot": snapshot, "collection": Binary(bytes.fromhex(uuid), 4), **of_range}
        )
        self._namespace = _elements({"ns": {"db": database, "coll": collection}})

    def batch(self, replies: Sequence[Reply], time: Timestamp) -> RawBatch:
        """The events of the documents in the replies, read as of ``time``, without resume tokens.

        Raises ``ValueError`` for a document without ``_id``.
        """
        middle = b"\0" + _elements({"operationType": READ, "clusterTime": time})
        middle += b"\x03fullDocument\0"
        pieces: list[bytes] = []
        bounds: list[int] = []
        at, append = 0, bounds.append
        known = _OBJECT_ID_BYTES
        head, tail, fixed = self._around(known, len(middle))
        for reply in replies:
            buffer, offsets = reply.buffer, iter(reply.bounds)
            for begin, end in zip(offsets, offsets, strict=True):
                identity = buffer[begin + 4 : begin + 4 + _OBJECT_ID_BYTES]
                if not identity.startswith(_ID_OF_OBJECT):
                    identity = document_id(buffer, begin)
                    if len(identity) != known:
                        known = len(identity)
                        head, tail, fixed = self._around(known, len(middle))
                elif known != _OBJECT_ID_BYTES:
                    known = _OBJECT_ID_BYTES
                    head, tail, fixed = self._around(known, len(middle))
                size = fixed + end - begin
                pieces += (
                    _length(size), head, identity, middle, buffer[begin:end], tail, identity,
                    b"\0\0",
                )  # fmt: skip
                append(at)
                at += size
                append(at)
        counts = {READ: len(bounds) // 2}
        return RawBatch(b"".join(pieces), bounds, None, None, counts)

    def of_keys(
        self, keys: Sequence[DocumentId], replies: Sequence[Reply], time: Timestamp
    ) -> tuple[RawBatch, int]:
        """An event for each key in turn: ``read`` with its document in the replies, or ``delete``
        if it has none. Also returns the size of the documents."""
        found, size = dict[bytes, bytes](), 0
        batch = self.batch(replies, time)
        at = iter(zip(batch.bounds[::2], batch.bounds[1::2], strict=True))
        for reply in replies:
            size += reply.bounds[-1] - reply.bounds[0] if reply.bounds else 0
            for begin in reply.bounds[::2]:
                first, last = next(at)
                found[identity(reply.buffer, begin)] = batch.buffer[first:last]
        events = [found.get(identity(key.raw, 0)) or self._delete(key, time) for key in keys]
        reads = sum(identity(key.raw, 0) in found for key in keys)
        counts = {READ: reads, DELETE: len(keys) - reads}
        return RawBatch(*join(events), None, None, counts), size

    def _delete(self, key: DocumentId, time: Timestamp) -> bytes:
        element = key.raw[4:-1]
        own = b"\x03_id\0" + encoded(self._identity + element)
        middle = _elements({"operationType": DELETE, "clusterTime": time})
        of_document = b"\x03documentKey\0" + encoded(element)
        return encoded(own + middle + self._namespace + of_document)

    def _around(self, identity: int, middle: int) -> tuple[bytes, bytes, int]:
        """The bytes before and after a document in its event, and the event's size without it.

        ``identity``: the size of the document's ``_id`` as an element; ``middle``: of the bytes
        between it and the document.
        """
        own = EMPTY_DOCUMENT + len(self._identity) + identity
        head = b"\x03_id\0" + _length(own) + self._identity
        key = _length(EMPTY_DOCUMENT + identity)
        tail = self._namespace + b"\x03documentKey\0" + key
        return head, tail, 4 + len(head) + identity + middle + len(tail) + identity + 2


def is_row(event: ChangeEvent) -> bool:
    """Whether an event belongs to a snapshot: a document, or a key that has none (``delete``)."""
    operation = event.operation_type
    return operation == READ or (operation == DELETE and of_snapshot(event.raw))


def document_id(buffer: bytes, start: int) -> bytes:
    """The ``_id`` of the document at ``start`` as a BSON element.

    Raises ``ValueError`` if it has none.
    """
    begin = start + 4
    if buffer.startswith(_NAME, begin + 1):  # by far the most, without a walk
        end = begin + _SIZES.get(buffer[begin], 0)
        if begin < end < start + _length_of(buffer, start)[0]:
            return buffer[begin:end]
    for name, _, value, end in walk(buffer, start):
        if name == b"_id":
            return buffer[value - len(b"?_id\0") : end]
    raise ValueError("a document has no _id")


def barrier(operation: str, snapshot: str, time: Timestamp, fields: Mapping[str, Any]) -> RawBatch:
    """The batch of one event that marks where a snapshot begins or ends, with more ``fields``.

    The event has no document key, so that everything before it is handled first.
    """
    event: Mapping[str, Any] = {
        "_id": {"snapshot": snapshot, "event": operation},
        "operationType": operation,
        "clusterTime": time,
        **fields,
    }
    raw = bson.encode(event)
    return RawBatch(raw, [0, len(raw)], None, None, {operation: 1})


def _elements(document: Mapping[str, Any]) -> bytes:
    """The elements of a document, without its length and its end."""
    return bson.encode(document)[4:-1]
