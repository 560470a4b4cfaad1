"""Where mongod puts what is asked of every event, found without walking or decoding the event.

A stream's events are alike: the token, the type, times, the document, then namespace and key. Two
regular expressions and the document's own length lead to the key, ten times as quick as decoding.
An event that looks otherwise (another server's) is walked: the answers are the same, only slower.
"""

from __future__ import annotations

import re

from bson.timestamp import Timestamp

from tailrace.event.bson_walk import (
    BOOLEAN,
    DOCUMENT,
    DOUBLE,
    FLOAT64,
    INT32,
    INT32_TYPE,
    INT64_TYPE,
    NULL,
    OBJECT_ID,
    STRING,
    SYMBOL,
    TIMESTAMP,
    UINT64,
    document_at,
    elements,
    find,
    string_at,
    value_end,
)

_ID = b"\x03_id\0"
TYPE = b"\x02operationType\0"
"""What stands before the name of a type."""
NUMBERED = b"\x12txnNumber\0"
"""What stands in every event of a transaction, before its number."""

# The order of fields: mongod, src/mongo/db/pipeline/change_stream_event_transform.cpp, 6.0 to 8.1,
# ChangeStreamDefaultEventTransformation::applyTransformation. It adds number and session of a
# transaction before the token (4.2 did in document_source_change_stream_transform.cpp), and of
# expanded events the collection's UUID before the wall time. Of the strings here the server makes
# every one, so they hold no zero bytes.
_SESSION = re.compile(
    rb"\x12txnNumber\0(.{8})\x03lsid\0(\x48\0\0\0.{68})\x03_id\0", re.DOTALL
).match
_HEAD = re.compile(
    rb"\x02operationType\0.\0\0\0(\w*)\0\x11clusterTime\0(.{8})"
    rb"(?:\x05collectionUUID\0\x10\0\0\0.{17})?(?:\x09wallTime\0.{8})?"
    rb"(?:(\x03fullDocument\0)|\x0afullDocument\0)?",
    re.DOTALL,
).match
_HAS_DOCUMENT = 3
_NS = rb"\x03ns\0(.{4}\x02db\0.{4}[^\0]*\0\x02coll\0.{4}[^\0]*\0\0)"
_TAIL = re.compile(_NS + rb"\x03documentKey\0(.{4})", re.DOTALL).match
_ONLY_ID = b"\x03documentKey\0\x16\0\0\0\x07_id\0"
_NAMED = re.compile(
    rb"((" + _NS + rb")(?:" + _ONLY_ID + rb".{12}|\x03documentKey\0(.{4})))", re.DOTALL
).match
_KEY_OF_MORE = 4


def token_at(buffer: bytes, start: int) -> int:
    """Where the token begins in the event at ``start``, if by its place it is found; otherwise 0.

    It comes first, or behind number and session of a transaction. The functions below look at the
    first place themselves: most events have it there, and a call costs as much as looking.
    """
    if buffer.startswith(_ID, start + 4):
        return start + 9
    session = _SESSION(buffer, start + 4)
    return 0 if session is None else session.end()


def operation_at(buffer: bytes, start: int) -> str:
    """The operation type of the event at ``start``; empty where it has none."""
    at = start + 9 if buffer.startswith(_ID, start + 4) else token_at(buffer, start)
    if at:
        at += INT32(buffer, at)[0]
        if buffer.startswith(TYPE, at):
            return string_at(buffer, at + len(TYPE))
    kind, at = elements(buffer, start).get(b"operationType", (0, 0))
    return string_at(buffer, at) if kind == STRING else ""


def cluster_time_at(buffer: bytes, start: int) -> Timestamp | None:
    """The event's ``clusterTime``."""
    head = _head(buffer, start)
    if head is not None:
        value = UINT64(buffer, head.start(2))[0]
    else:
        kind, at = elements(buffer, start).get(b"clusterTime", (0, 0))
        if kind != TIMESTAMP:
            return None
        value = UINT64(buffer, at)[0]
    return Timestamp(value >> 32, value & 0xFFFFFFFF)


def field_at(buffer: bytes, start: int, name: bytes) -> bytes | None:
    """The document that is the event's ``_id``, ``ns`` or ``documentKey``; ``None`` if none is."""
    if name == b"_id":
        at = start + 9 if buffer.startswith(_ID, start + 4) else token_at(buffer, start)
        if at:
            return document_at(buffer, at)
    else:
        tail = _tail(buffer, start)
        if tail is not None:
            return tail[1] if name == b"ns" else document_at(buffer, tail.start(2))
    kind, at = elements(buffer, start).get(name, (0, 0))
    return document_at(buffer, at) if kind == DOCUMENT else None


def transaction_at(buffer: bytes, start: int, end: int) -> tuple[bytes, bytes] | None:
    """Session and number of the event's transaction, and its time; ``None`` if it is of none.

    The event ends before ``end``. All are bytes as they stand; the time is empty if there is none.
    """
    if buffer.find(NUMBERED, start, end) < 0:
        return None
    found = _SESSION(buffer, start + 4)
    if found is not None:
        at = found.end()
        head = _HEAD(buffer, at + INT32(buffer, at)[0])
        if head is not None:
            return found[2] + found[1], head[2]
    fields = elements(buffer, start)
    kind, number = fields.get(b"txnNumber", (0, 0))
    session, lsid = fields.get(b"lsid", (0, 0))
    if kind != INT64_TYPE or session != DOCUMENT:
        return None
    transaction = document_at(buffer, lsid) + buffer[number : number + 8]
    kind, time = fields.get(b"clusterTime", (0, 0))
    return transaction, buffer[time : time + 8] if kind == TIMESTAMP else b""


def image_at(buffer: bytes, start: int) -> bytes | None:
    """The event's ``fullDocument``; ``None`` too where it is not found by its place."""
    head = _head(buffer, start)
    if head is None or head.lastindex != _HAS_DOCUMENT:
        return None
    return document_at(buffer, head.end())


def document_named(buffer: bytes, start: int) -> bytes | None:
    """Collection and ``_id`` of the changed document, as bytes that no other document has.

    ``None`` where the event is not about one document. This is asked of every event, hence the
    common case all in one function.
    """
    at = start + 9 if buffer.startswith(_ID, start + 4) else token_at(buffer, start)
    if at:
        head = _HEAD(buffer, at + INT32(buffer, at)[0])
        if head is not None:
            at = head.end()
            if head.lastindex == _HAS_DOCUMENT:
                at += INT32(buffer, at)[0]
            named = _NAMED(buffer, at)
            if named is not None:
                if named[_KEY_OF_MORE] is None:
                    return named[1]
                return named[2] + _identity(buffer, named.start(_KEY_OF_MORE))
    fields = elements(buffer, start)
    kind, key = fields.get(b"documentKey", (0, 0))
    ns_kind, ns = fields.get(b"ns", (0, 0))
    if kind != DOCUMENT or ns_kind != DOCUMENT:
        return None
    return b"\x03ns\0" + document_at(buffer, ns) + _identity(buffer, key)


def _identity(buffer: bytes, key: int) -> bytes:
    """The ``_id`` in the ``documentKey``, the same for all numbers that are equal.

    (But for decimals.) Also the same for null and none, for a symbol and a string, and for truth
    and numbers, as :attr:`tailrace.event.change_event.ChangeEvent.key` is.
    """
    kind, value = find(buffer, key, b"_id") or (NULL, 0)
    if kind in (STRING, SYMBOL):
        return b"\x02_id\0" + buffer[value : value + 4 + INT32(buffer, value)[0]]
    if kind == INT32_TYPE:
        return _integer(INT32(buffer, value)[0])
    if kind == BOOLEAN:
        return _integer(buffer[value])
    if kind == DOUBLE:
        number = FLOAT64(buffer, value)[0]
        if number.is_integer() and -(2**63) <= number < 2**63:
            return _integer(int(number))
    before = _ONLY_ID if kind == OBJECT_ID else b"%c_id\0" % kind
    return before + buffer[value : value_end(buffer, kind, value)]


def _integer(number: int) -> bytes:
    return b"\x12_id\0" + number.to_bytes(8, "little", signed=True)


def _head(buffer: bytes, start: int) -> re.Match[bytes] | None:
    at = start + 9 if buffer.startswith(_ID, start + 4) else token_at(buffer, start)
    return _HEAD(buffer, at + INT32(buffer, at)[0]) if at else None


def _tail(buffer: bytes, start: int) -> re.Match[bytes] | None:
    head = _head(buffer, start)
    if head is None:
        return None
    at = head.end()
    if head.lastindex == _HAS_DOCUMENT:
        at += INT32(buffer, at)[0]
    return _TAIL(buffer, at)
