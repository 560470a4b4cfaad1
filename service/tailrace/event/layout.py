"""Locates the parts of an event: the one place that knows the order in which mongod writes them.

Between the values, mongod writes the same few names in the same order. So the lengths of the values
lead from one part to the next, and the bytes between them are compared with bytes that were checked
before. An event with another order (a DDL operation, a pipeline that reshapes) is walked, which
takes five times as long and finds the same. The last element of a repeated name counts, as in
decoding.
"""

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Any, TypeAlias

from bson.timestamp import Timestamp

from tailrace.event import bson
from tailrace.event.bson import INT32, walk
from tailrace.event.memo import Memo
from tailrace.model.token import ResumeToken

FIELDS = {
    b"_id": bson.DOCUMENT,
    b"operationType": bson.STRING,
    b"clusterTime": bson.TIMESTAMP,
    b"wallTime": bson.DATE,
    b"fullDocument": bson.DOCUMENT,
    b"ns": bson.DOCUMENT,
    b"documentKey": bson.DOCUMENT,
    b"fullDocumentBeforeChange": bson.DOCUMENT,
    b"updateDescription": bson.DOCUMENT,
}
"""The fields that are parts, and the types that the server gives them."""

Parts: TypeAlias = tuple[Any, ...]
"""What :func:`parts` finds, at the indices below; ``None`` for a value that the event lacks.

- ``TOKEN``, ``FULL_DOCUMENT``, ``DOCUMENT_KEY``, ``UPDATE``, ``BEFORE_CHANGE``: the offset of the
  document, and at the next index the offset of its end;
- ``NAMESPACE``: the document itself; ``OPERATION``: the name as UTF-8; seconds and increment of the
  cluster time; milliseconds of the wall time;
- at the first index the event's end, at the last the start and end of each element that is no part.
"""
END, TOKEN, OPERATION, SECONDS, INCREMENT, WALL_TIME = 0, 1, 3, 4, 5, 6
FULL_DOCUMENT, NAMESPACE, DOCUMENT_KEY, UPDATE, BEFORE_CHANGE, OTHERS = 7, 9, 10, 12, 14, 16

ABSENT = -1
"""The offset of a part that an event lacks, or has with another type than the server's."""
_NOWHERE = (ABSENT, ABSENT)

TRANSACTION = b"\x12txnNumber\0"
"""The bytes before the transaction number, in every event of a transaction."""
TYPE = b"\x02operationType\0"
"""The bytes between the token and the length of the operation's name."""

# The order of fields: mongod, src/mongo/db/pipeline/change_stream_event_transform.cpp, 6.0 to 8.1,
# ChangeStreamDefaultEventTransformation::applyTransformation. It adds number and session of a
# transaction before the token (in 4.2: document_source_change_stream_transform.cpp). In expanded
# events it adds the collection's UUID before the wall time, which servers before 6.0 do not send.
# Images that are looked up (pre-images, and documents if mongos does it) come last.
_ID, _SESSION = b"\x03_id\0", b"\x03lsid\0"
_TIME, _WALL = b"\x11clusterTime\0", b"\x09wallTime\0"
_UUID = b"\x05collectionUUID\0\x10\0\0\0"
_UUID_BYTES = len(_UUID) + 1 + 16
_IMAGE, _NO_IMAGE = b"\x03fullDocument\0", b"\x0afullDocument\0"
_KEY = b"\x03documentKey\0"
_UPDATE, _BEFORE = b"\x03updateDescription\0", b"\x03fullDocumentBeforeChange\0"

_TOKEN_AT = 4 + len(_ID)
_LENGTH_AT = len(TYPE)
_TIME_END = len(TYPE) + 4 + len(_TIME) + 8
_IMAGE_BYTES = len(_IMAGE)
_KEY_AT = 4 + len(_KEY)
_SESSION_AT = 4 + len(TRANSACTION) + 8 + len(_SESSION)
_to_token = Struct(f"<I{len(_ID)}sI").unpack_from
_name = re.compile(TYPE + rb"(.)\0\0\0(\w*)\0" + _TIME, re.DOTALL).fullmatch
_namespace_and_key = re.compile(
    rb"\x03ns\0(.{4}\x02db\0.{4}[^\0]*\0\x02coll\0.{4}[^\0]*\0\0)" + _KEY, re.DOTALL
).fullmatch


def _front(key: int) -> tuple[Callable[[bytes, int], tuple[Any, ...]], int]:
    """A reader from the token's end to the document or namespace, and the bytes up to there.

    ``key``: the length of the operation's name, and the type of the field after the cluster time.
    The operation and the wall time are read together with the names around them.
    """
    name, kind = divmod(key, 256)
    before = len(TYPE) + 4 + name + len(_TIME)
    middle = {bson.BINARY: f"{_UUID_BYTES + len(_WALL)}sq", bson.DATE: f"{len(_WALL)}sq"}
    front = Struct(f"<{before}sII{middle.get(kind, '0s0s')}")
    whole = Struct(f"{front.format}{len(_IMAGE)}sI")
    return whole.unpack_from, front.size


def _operation(text: bytes) -> bytes:
    found = _name(text)
    if found is None or found[1][0] != len(found[2]) + 1:
        raise ValueError(text)
    return found[2]


def _uuid(text: bytes) -> bool:
    """Whether this is a collection's UUID with the name of the wall time after it."""
    return text.startswith(_UUID) and text.endswith(_WALL)


def _namespace(text: bytes) -> bytes:
    found = _namespace_and_key(text)
    if found is None or INT32(found[1], 0)[0] != len(found[1]):
        raise ValueError(text)
    return found[1]


_fronts, _operations = Memo(_front), Memo(_operation)
_uuids, _namespaces = Memo(_uuid), Memo(_namespace)


def parts(buffer: bytes, start: int) -> Parts:
    """The parts of the event at ``start``. Called for every event, hence a single function.

    Every position is the sum of the lengths before it, and the last one must be the event's end. If
    the event had to be walked, its end is :data:`ABSENT` and its other elements are left out. In
    malformed BSON, the parts before the first wrong byte are found, so that an error can name the
    event.
    """
    try:
        size, name, length = _to_token(buffer, start)
        token = start + _TOKEN_AT
        others: tuple[tuple[int, int], ...] = ()
        if name != _ID:
            token = token_at(buffer, start)
            length = INT32(buffer, token)[0]
            others = ((start + 4, token - len(_ID)),)
        token_end = token + length

        length = buffer[token_end + _LENGTH_AT]
        unpack, front = _fronts[length << 8 | buffer[token_end + length + _TIME_END]]
        before, increment, seconds, middle, wall_time, name, length = unpack(buffer, token_end)
        operation = _operations[before]
        at = token_end + front
        if middle != _WALL:
            if not middle:
                wall_time = None
            elif _uuids[middle]:
                uuid = at - len(middle) - 8
                others += ((uuid, uuid + _UUID_BYTES),)
            else:
                return _walked(buffer, start)

        image, image_end = _NOWHERE
        if name == _IMAGE:
            image = at + _IMAGE_BYTES
            at = image_end = image + length
        elif name == _NO_IMAGE:
            others += ((at, at + _IMAGE_BYTES),)
            at += _IMAGE_BYTES

        key = at + buffer[at + 4] + _KEY_AT  # if this is a namespace of less than 256 bytes
        namespace = _namespaces[buffer[at:key]]
        at = key_end = key + INT32(buffer, key)[0]

        update, update_end = before_change, before_change_end = _NOWHERE
        end = start + size
        while at < end - 1:
            value = buffer.index(0, at) + 1
            name, at = buffer[at:value], value + INT32(buffer, value)[0]
            if name == _UPDATE and update < 0:
                update, update_end = value, at
            elif name == _BEFORE and before_change < 0:
                before_change, before_change_end = value, at
            elif name == _IMAGE and image < 0:
                image, image_end = value, at
            else:
                return _walked(buffer, start)
        if at != end - 1:
            return _walked(buffer, start)
    except (IndexError, ValueError, struct.error):
        return _walked(buffer, start)
    return (
        end, token, token_end, operation, seconds, increment, wall_time, image, image_end,
        namespace, key, key_end, update, update_end, before_change, before_change_end, others,
    )  # fmt: skip


def _walked(buffer: bytes, start: int) -> Parts:
    fields = dict.fromkeys(FIELDS, _NOWHERE)
    with suppress(ValueError):
        for name, kind, value, end in walk(buffer, start):
            if name in FIELDS:
                fields[name] = (value, end) if kind == FIELDS[name] else _NOWHERE
    operation, time, wall_time, namespace = (
        buffer[slice(*fields[name])]  # empty for a missing value
        for name in (b"operationType", b"clusterTime", b"wallTime", b"ns")
    )
    return (
        ABSENT,
        *fields[b"_id"],
        operation[4:-1] if operation else None,
        int.from_bytes(time[4:], "little") if time else None,
        int.from_bytes(time[:4], "little") if time else None,
        int.from_bytes(wall_time, "little", signed=True) if wall_time else None,
        *fields[b"fullDocument"],
        namespace or None,
        *fields[b"documentKey"],
        *fields[b"updateDescription"],
        *fields[b"fullDocumentBeforeChange"],
        (),
    )


def resume_token(buffer: bytes, parts: Parts) -> ResumeToken | None:
    """The event's resume token."""
    return None if parts[TOKEN] < 0 else ResumeToken(buffer[parts[TOKEN] : parts[TOKEN + 1]])


def cluster_time(parts: Parts) -> Timestamp | None:
    """The event's cluster time."""
    return None if parts[SECONDS] is None else Timestamp(parts[SECONDS], parts[INCREMENT])


def changed_at(parts: Parts) -> float | None:
    """When the event happened, as a Unix time: by its wall time, in milliseconds, or else, before
    server 6.0, by the whole seconds of its cluster time."""
    wall_time: int | None = parts[WALL_TIME]
    seconds: int | None = parts[SECONDS]
    return seconds if wall_time is None else wall_time / 1000


def operation_type(parts: Parts) -> str:
    """The operation's name; empty if the event has none."""
    return NAMES_OF_OPERATIONS[parts[OPERATION]]


NAMES_OF_OPERATIONS: Memo[bytes | None, str] = Memo(
    lambda name: (name or b"").decode("utf-8", "replace")
)
"""By what :func:`parts` finds at ``OPERATION``, the operation's name; empty for ``None``."""


def token_at(buffer: bytes, start: int) -> int:
    """Where the token starts in an event with mongod's order; raises if it is not there."""
    at = start + 4
    if buffer.startswith(TRANSACTION, at):
        session = start + _SESSION_AT
        if not buffer.startswith(_SESSION, session - len(_SESSION)):
            raise ValueError(at)
        at = session + INT32(buffer, session)[0]
    if not buffer.startswith(_ID, at):
        raise ValueError(at)
    return at + len(_ID)


def transaction_at(buffer: bytes, start: int, end: int) -> tuple[bytes, bytes] | None:
    """Session and number of the event's transaction, and the event's time or b"", as raw bytes.

    ``None`` if the event is in no transaction. The event ends before ``end``.
    """
    if buffer.find(TRANSACTION, start, end) < 0:
        return None
    fields = bson.elements(buffer, start)
    kind, number = fields.get(b"txnNumber", (0, 0))
    session, lsid = fields.get(b"lsid", (0, 0))
    if kind != bson.INT64_TYPE or session != bson.DOCUMENT:
        return None
    kind, time = fields.get(b"clusterTime", (0, 0))
    transaction = bson.document_at(buffer, lsid) + buffer[number : number + 8]
    return transaction, buffer[time : time + 8] if kind == bson.TIMESTAMP else b""
