"""An event's values found where mongod puts them: each by its place and length, none searched for.

Between documents, whose lengths stand in front of them, an event is the same few names and numbers
in the same order, so some calls of ``struct`` cut it: a sixth of what walking it takes. Whatever
does not fit (a rare operation, another server's order) is left to be walked.
"""

from __future__ import annotations

import re
from struct import Struct

from service.model.bson_walk import EMPTY_DOCUMENT, INT32, STRING, walk

Row = tuple[
    int | None,
    int | None,
    bytes,
    int | None,
    bytes,
    bytes | None,
    bytes | None,
    bytes | None,
    bytes | None,
    bytes | None,
    bytes | None,
    bytes | None,
]
"""An event's values, in the order of :data:`service.handlers.parquet.columns.NAMES`."""

Places = dict[bytes, tuple[bytes, bytes, int]]
"""A namespace, the name of the document key and its length, as they stand in the event, to
database, collection and that length: a stream repeats few of them."""

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: readers fail on timestamps beyond them."""

# The order of fields: mongod, src/mongo/db/pipeline/change_stream_event_transform.cpp; a pre-image
# is added behind it, by change_stream_add_pre_image. Sizes: https://bsonspec.org/spec.html
_ID = b"\x03_id\0"
_TYPE = b"\x02operationType\0"
_TIME = b"\x11clusterTime\0"
_WALL_TIME = b"\x09wallTime\0"
_IMAGE = b"\x03fullDocument\0"
_NS = b"\x03ns\0"
_KEY = b"\x03documentKey\0"
_UPDATE = b"\x03updateDescription\0"
_PRE_IMAGE = b"\x03fullDocumentBeforeChange\0"

_TO_TOKEN = Struct("<i5sI").unpack_from
_TO_IMAGE = Struct("<14sI").unpack_from
_TO_UPDATE = Struct("<19sI").unpack_from
_TO_PRE_IMAGE = Struct("<26sI").unpack_from
_TOKEN_AT = 9

_OTHERS = re.compile(  # sessions of 72 bytes, UUIDs, …; no type here is that of a column's field
    rb"(?:\x05\w+\0\x10\0\0\0.{17}|\x03lsid\0\x48\0\0\0.{68}|[\x01\x12]\w+\0.{8}|\x07\w+\0.{12}"
    rb"|\x08\w+\0.|\x0a\w+\0|\x10\w+\0.{4})+",
    re.DOTALL,
).match


def _to_cluster_time(operation: bytes) -> bytes:
    """What stands between token and cluster time."""
    return b"%b%c\0\0\0%b\0%b" % (_TYPE, len(operation) + 1, operation, _TIME)


_KNOWN_BYTES = 26
"""Up to here behind the token the operations below differ."""

_OPERATIONS = {
    known[:_KNOWN_BYTES]: (operation, known, Struct(f"<{len(known)}sII10sq14sI").unpack_from)
    for operation in (b"insert", b"update", b"replace", b"delete")
    for known in [_to_cluster_time(operation)]
}
"""What stands behind the token to the operation, all up to the cluster time, and how to unpack
that, both times and what follows, which may be the document."""


def placed(event: bytes, places: Places) -> Row | None:
    """The event's values; ``None`` where it must be walked to know.

    ``places`` is empty at first, and grows with what is new. So it is too where it raises
    ``struct.error``, ``IndexError`` or ``ValueError``: something ends too soon, or is no text.

    Asked of every event, hence all in one function. Every position is the sum of the lengths before
    it, and the last one must be the event's end, so none is outside.
    """
    size, name, length = _TO_TOKEN(event)
    at = _TOKEN_AT + length
    found = _OPERATIONS.get(event[at : at + _KNOWN_BYTES])
    if found is None or name != _ID or length < EMPTY_DOCUMENT:
        return None
    if size != len(event) or event[-1]:
        return None
    token = event[_TOKEN_AT:at]

    operation, before, unpack = found
    known, increment, seconds, date, wall_time, name, length = unpack(event, at)
    if known != before or date != _WALL_TIME or not FIRST_MS <= wall_time <= LAST_MS:
        return None
    at += len(known) + 26

    image = update = pre_image = extra = None
    if name != _IMAGE and name[:4] != _NS:
        others = _OTHERS(event, at)
        if others is None:
            return None
        extra = b"%b%b\0" % ((others.end() - at + EMPTY_DOCUMENT).to_bytes(4, "little"), others[0])
        at = others.end()
        name, length = _TO_IMAGE(event, at)
    if name == _IMAGE:
        if length < EMPTY_DOCUMENT:
            return None
        begin = at + 14
        at = begin + length
        image = event[begin:at]

    begin = at + event[at + 4] + 17  # of the document key, if here is a short enough namespace
    place = event[at : begin + 4]
    named = places.get(place)
    if named is None:
        named = _named(place)
        if named is None:
            return None
        places[place] = named
    database, collection, length = named
    at = begin + length
    key = event[begin:at]

    if at + 1 != size:
        name, length = _TO_UPDATE(event, at)
        if name == _UPDATE:
            if length < EMPTY_DOCUMENT:
                return None
            begin = at + 19
            at = begin + length
            update = event[begin:at]
        if at + 1 != size:
            name, length = _TO_PRE_IMAGE(event, at)
            if name != _PRE_IMAGE or length < EMPTY_DOCUMENT:
                return None
            begin = at + 26
            at = begin + length
            pre_image = event[begin:at]
            if at + 1 != size:
                return None
    return (
        seconds,
        increment,
        token,
        wall_time,
        operation,
        database,
        collection,
        key,
        image,
        pre_image,
        update,
        extra,
    )


def _named(place: bytes) -> tuple[bytes, bytes, int] | None:
    """Database, collection and the key's length; ``None`` if something else stands here."""
    ns = place[len(_NS) : -len(_KEY) - 4]
    if place != b"%b%b%b%b" % (_NS, ns, _KEY, place[-4:]) or INT32(ns, 0)[0] != len(ns):
        return None
    length = INT32(place, len(place) - 4)[0]
    values = [(name, kind, ns[value + 4 : end - 1]) for name, kind, value, end in walk(ns, 0)]
    if length < EMPTY_DOCUMENT or [value[:2] for value in values] != _BOTH_NAMES:
        return None
    database, collection = values[0][2], values[1][2]
    for text in (database, collection):
        text.decode()  # what is no UTF-8 is not taken as it stands
    return database, collection, length


_BOTH_NAMES = [(b"db", STRING), (b"coll", STRING)]
