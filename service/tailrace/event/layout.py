"""Where the parts of an event lie: the one place that knows in which order mongod writes them.

The survey of a reply, document keys, events and columns all ask here. Two regular expressions and
the document's own length lead through an event of mongod, a quarter of what walking its elements
takes. An event of another order (a rare operation, a pipeline that reshapes) is walked: the answers
are the same. Elements that a walk finds count as decoding has them: of a repeated name the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from tailrace.event.bson import (
    DATE,
    DOCUMENT,
    INT32,
    INT64_TYPE,
    STRING,
    TIMESTAMP,
    document_at,
    elements,
    walk,
    walk_between,
)

ABSENT = -1
"""The offset of a part that an event does not have, or has as another type than the server's."""

FIELDS = (
    (b"_id", DOCUMENT),
    (b"operationType", STRING),
    (b"clusterTime", TIMESTAMP),
    (b"wallTime", DATE),
    (b"fullDocument", DOCUMENT),
    (b"ns", DOCUMENT),
    (b"documentKey", DOCUMENT),
    (b"fullDocumentBeforeChange", DOCUMENT),
    (b"updateDescription", DOCUMENT),
)
"""The parts, by name and type."""

TOKEN, OPERATION, CLUSTER_TIME, WALL_TIME, FULL_DOCUMENT = range(5)
NAMESPACE, DOCUMENT_KEY, BEFORE_CHANGE, UPDATE = range(5, 9)
_NUMBERS = {name: (number, kind) for number, (name, kind) in enumerate(FIELDS)}

Offsets = list[int]
"""Where the value of each part begins, in the order of :data:`FIELDS`."""

TRANSACTION = b"\x12txnNumber\0"
"""What stands in every event of a transaction, before its number."""
TYPE = b"\x02operationType\0"
"""What stands behind the token, before the length of the operation's name."""

# The order of fields: mongod, src/mongo/db/pipeline/change_stream_event_transform.cpp, 6.0 to 8.1,
# ChangeStreamDefaultEventTransformation::applyTransformation. It adds number and session of a
# transaction before the token (4.2 did in document_source_change_stream_transform.cpp), and of
# expanded events the collection's UUID before the wall time, which servers before 6.0 do not send.
# A token has type bits where a key alone does not tell the type of an _id (doubles, 64-bit
# integers). Images that are looked up (pre-images, and documents where mongos does it) come last.
# Of the strings here the server makes every one, so they hold no zero bytes.
_SESSION = rb"(?:\x12txnNumber\0.{8}\x03lsid\0\x48\0\0\0.{68})?"
_TOKEN = rb"\x03_id\0(.{4})\x02_data\0.{4}[0-9A-Fa-f]*\0(?:\x05_typeBits\0.\0\0\0\0.{,64}?)?\0"
_FRONT = re.compile(_SESSION + rb"\x03_id\0(?=(.\0\0\0))", re.DOTALL).match
_HEAD = re.compile(
    _SESSION + _TOKEN + rb"\x02operationType\0(.)\0\0\0\w*\0\x11clusterTime\0(.)(?:.{7})"
    rb"(?:\x05collectionUUID\0\x10\0\0\0.{17})?(?:\x09wallTime\0(.).{7})?"
    rb"(?:(\x03fullDocument\0)|\x0afullDocument\0)?",
    re.DOTALL,
).match
_HAS_DOCUMENT = 5
_DESCRIPTION = b"\x03updateDescription\0"
_TAIL = re.compile(
    rb"\x03ns\0(.{4}\x02db\0.{4}[^\0]*\0\x02coll\0.{4}[^\0]*\0\0)\x03documentKey\0", re.DOTALL
).match


def offsets(buffer: bytes, start: int) -> Offsets:
    """Where the parts of the event at ``start`` lie.

    Of bytes that are no BSON: those in front of what is wrong, so that an error can name the event.
    """
    head = _HEAD(buffer, start + 4)
    if head is not None:
        image, at = ABSENT, head.end()
        if head.lastindex == _HAS_DOCUMENT:
            image = at
            at += INT32(buffer, at)[0]
        tail = _TAIL(buffer, at)
        if tail is not None:
            key = tail.end()
            found = [
                head.start(1),
                head.start(2),
                head.start(3),
                head.start(4),
                image,
                at + 4,
                key,
                ABSENT,
                ABSENT,
            ]
            at, last = key + INT32(buffer, key)[0], start + INT32(buffer, start)[0] - 1
            if at != last and buffer.startswith(_DESCRIPTION, at):
                value = at + len(_DESCRIPTION)
                if value + int.from_bytes(buffer[value : value + 4], "little") == last:
                    found[UPDATE] = value
                    return found
            if at != last:
                with suppress(ValueError):
                    _note(found, walk_between(buffer, at, last))
            return found
    found = [ABSENT] * len(FIELDS)
    with suppress(ValueError):
        _note(found, walk(buffer, start))
    return found


def _note(found: Offsets, walked: Iterable[tuple[bytes, int, int, int]]) -> None:
    for name, kind, value, _ in walked:
        if name in _NUMBERS:
            number, expected = _NUMBERS[name]
            found[number] = value if kind == expected else ABSENT


def named(buffer: bytes, start: int) -> tuple[bytes, int] | None:
    """The namespace of the event at ``start``, and where its ``documentKey`` lies.

    ``None`` where it has no such key. Raises ``ValueError`` where bytes that are no BSON keep it
    from being found. Asked of every event, hence apart from :func:`offsets`.
    """
    head = _HEAD(buffer, start + 4)
    if head is not None:
        at = head.end()
        if head.lastindex == _HAS_DOCUMENT:
            at += INT32(buffer, at)[0]
        tail = _TAIL(buffer, at)
        if tail is not None:
            return tail[1], tail.end()
    found = [ABSENT] * len(FIELDS)
    _note(found, walk(buffer, start))
    if found[DOCUMENT_KEY] < 0:
        return None
    namespace = found[NAMESPACE]
    return b"" if namespace < 0 else document_at(buffer, namespace), found[DOCUMENT_KEY]


def token_at(buffer: bytes, start: int) -> int:
    """Where the token of an event of mongod's order begins; :data:`ABSENT` in any other."""
    front = _FRONT(buffer, start + 4)
    return ABSENT if front is None else front.end()


def transaction_at(buffer: bytes, start: int, end: int) -> tuple[bytes, bytes] | None:
    """Session and number of the event's transaction, and its time; ``None`` if it is of none.

    The event ends before ``end``. All are bytes as they stand; the time is empty if there is none.
    """
    if buffer.find(TRANSACTION, start, end) < 0:
        return None
    fields = elements(buffer, start)
    kind, number = fields.get(b"txnNumber", (0, 0))
    session, lsid = fields.get(b"lsid", (0, 0))
    if kind != INT64_TYPE or session != DOCUMENT:
        return None
    kind, time = fields.get(b"clusterTime", (0, 0))
    transaction = document_at(buffer, lsid) + buffer[number : number + 8]
    return transaction, buffer[time : time + 8] if kind == TIMESTAMP else b""
