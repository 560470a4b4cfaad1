"""An event's values found where mongod puts them: each by its place and length, none searched for.

Between documents, whose lengths stand in front of them, an event is the same few names and numbers
in the same order, so some calls of ``struct`` cut it: a seventh of what walking takes. Whatever
does not fit (a rare operation, another server's order) is left to be walked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import Any

from tailrace.event.bson import EMPTY_DOCUMENT, INT32

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
"""An event's values, in the order of :data:`tailrace.handlers.parquet.columns.NAMES`."""

Unpack = Callable[[bytes, int], tuple[Any, ...]]

Places = dict[bytes, tuple[bytes, bytes, int]]
"""A namespace, the name of the document key and its length, as they stand in the event, to
database, collection and that length: a stream repeats few of them."""

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: readers fail on timestamps beyond them."""

# The order of fields: mongod, src/mongo/db/pipeline/change_stream_event_transform.cpp. In a
# transaction its number and session come before all; of expanded events the collection's UUID comes
# before the wall time, which servers before 6.0 do not have. Images that are looked up (pre-images,
# and documents where mongos does it) are added at the end. Sizes: https://bsonspec.org/spec.html
_ID = b"\x03_id\0"
_TYPE = b"\x02operationType\0"
_TIME = b"\x11clusterTime\0"
_WALL_TIME = b"\x09wallTime\0"
_IMAGE = b"\x03fullDocument\0"
_NS = b"\x03ns\0"
_DATABASE, _COLLECTION = b"\x02db\0", b"\x02coll\0"
_KEY = b"\x03documentKey\0"
_UPDATE = b"\x03updateDescription\0"
_PRE_IMAGE = b"\x03fullDocumentBeforeChange\0"

_TOKEN_AT = 4 + len(_ID)
_LETTER_AT = len(_TYPE) + 4
_WALL_TIME_BYTES = len(_WALL_TIME) + 8
_IMAGE_AT, _UPDATE_AT, _PRE_IMAGE_AT = len(_IMAGE), len(_UPDATE), len(_PRE_IMAGE)
_NS_AT, _KEY_AT = len(_NS), len(_KEY)

# A name and what follows it; of a document its length, which is of the document itself, too.
_WITH_WALL_TIME = f"{len(_WALL_TIME)}sq"
_TO_IMAGE = f"{_IMAGE_AT}sI"
_to_token = Struct(f"<i{len(_ID)}sI").unpack_from
_to_later_token = Struct(f"<{len(_ID)}sI").unpack_from
_with_wall_time = Struct(f"<{_WITH_WALL_TIME}").unpack_from
_to_image = Struct(f"<{_TO_IMAGE}").unpack_from
_to_update = Struct(f"<{_UPDATE_AT}sI").unpack_from
_length = Struct("<I").pack

_OTHERS = re.compile(  # sessions of 72 bytes, UUIDs, …; no type here is that of a column's field
    rb"(?:\x05\w+\0\x10\0\0\0.{17}|\x03lsid\0\x48\0\0\0.{68}|[\x01\x12]\w+\0.{8}|\x07\w+\0.{12}"
    rb"|\x08\w+\0.|\x0a\w+\0|\x10\w+\0.{4})+",
    re.DOTALL,
).match


def _string(text: bytes) -> bytes:
    return b"%b%b\0" % (_length(len(text) + 1), text)


def _operation(name: bytes) -> tuple[bytes, bytes, int, Unpack]:
    """Its name, what stands from the token to the cluster time, where behind the token that time
    ends, and how to read it all, up to the length of what may be the document."""
    before = _TYPE + _string(name) + _TIME
    head = Struct(f"<{len(before)}sII{_WITH_WALL_TIME}{_TO_IMAGE}")
    return name, before, len(before) + 8, head.unpack_from


_OPERATIONS = {name[0]: _operation(name) for name in (b"insert", b"update", b"replace", b"delete")}
"""Those of documents, by their first letters. All others are rare."""


def placed(event: bytes, places: Places) -> Row | None:
    """The event's values; ``None`` where it must be walked to know.

    ``places`` is empty at first, and grows with what is new. So it is too where it raises
    ``struct.error``, ``LookupError`` or ``ValueError``: something ends too soon, or is no text.

    Asked of every event, hence all in one function. Every position is the sum of the lengths before
    it, and the last one must be the event's end, so none is outside.
    """
    size, name, length = _to_token(event)
    if size != len(event) or event[-1]:
        return None
    begin, others = _TOKEN_AT, b""
    if name != _ID:
        at = _behind_others(event, 4)
        others = event[4:at]
        name, length = _to_later_token(event, at)
        begin = at + len(_ID)
    at = begin + length
    if name != _ID or length < EMPTY_DOCUMENT:
        return None
    token = event[begin:at]

    operation, before, time_end, unpack = _OPERATIONS[event[at + _LETTER_AT]]
    known, increment, seconds, date, wall_time, name, length = unpack(event, at)
    if known != before:
        return None
    at += time_end

    image = update = pre_image = extra = None
    if date == _WALL_TIME:
        at += _WALL_TIME_BYTES
    else:
        begin, at = at, _behind_others(event, at)
        others += event[begin:at]
        date, wall_time = _with_wall_time(event, at)
        if date == _WALL_TIME:
            at += _WALL_TIME_BYTES
        else:
            wall_time = None
        name, length = _to_image(event, at)
    if wall_time is not None and not FIRST_MS <= wall_time <= LAST_MS:
        return None
    if name != _IMAGE and name[:4] != _NS:
        begin, at = at, _behind_others(event, at)
        others += event[begin:at]
        name, length = _to_image(event, at)
    if name == _IMAGE:
        if length < EMPTY_DOCUMENT:
            return None
        begin = at + _IMAGE_AT
        at = begin + length
        image = event[begin:at]

    ns = at + _NS_AT  # if here is one of less than 256 bytes
    begin = ns + event[ns] + _KEY_AT
    place = event[at : begin + 4]
    try:
        database, collection, length = places[place]
    except KeyError:
        named = _named(place)
        if named is None:
            return None
        database, collection, length = places[place] = named
    at = begin + length
    key = event[begin:at]

    if at + 1 != size:
        name, length = _to_update(event, at)
        if name == _UPDATE:
            if length < EMPTY_DOCUMENT:
                return None
            begin = at + _UPDATE_AT
            at = begin + length
            update = event[begin:at]
        while at + 1 != size:
            begin, at = at, _behind_others(event, at)
            others += event[begin:at]
            if image is None and event.startswith(_IMAGE, at):
                image = _document(event, at + _IMAGE_AT)
                at += _IMAGE_AT + len(image)
            elif pre_image is None and event.startswith(_PRE_IMAGE, at):
                pre_image = _document(event, at + _PRE_IMAGE_AT)
                at += _PRE_IMAGE_AT + len(pre_image)
            elif at == begin:
                return None
    if others:
        extra = _length(len(others) + EMPTY_DOCUMENT) + others + b"\0"
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


def _behind_others(event: bytes, at: int) -> int:
    """Where the elements end, if any, that begin here and have no columns."""
    others = _OTHERS(event, at)
    return at if others is None else others.end()


def _document(event: bytes, at: int) -> bytes:
    """The document that begins here. Raises ``ValueError`` where none can."""
    length = INT32(event, at)[0]
    document = event[at : at + length]
    if length < EMPTY_DOCUMENT or len(document) != length:
        raise ValueError(f"length {length}")
    return document


def _named(place: bytes) -> tuple[bytes, bytes, int] | None:
    """Database, collection and the key's length; ``None`` if something else stands here.

    To know, the place is made again of what was read.
    """
    behind = len(place) - _KEY_AT - 4
    begin = _NS_AT + 4 + len(_DATABASE) + 4
    end = begin + INT32(place, begin - 4)[0] - 1
    database, collection = place[begin:end], place[end + 1 + len(_COLLECTION) + 4 : behind - 2]
    names = b"%b%b%b%b" % (_DATABASE, _string(database), _COLLECTION, _string(collection))
    ns = b"%b%b%b\0" % (_NS, _length(len(names) + EMPTY_DOCUMENT), names)
    length = INT32(place, len(place) - 4)[0]
    if place != b"%b%b%b" % (ns, _KEY, place[-4:]) or length < EMPTY_DOCUMENT:
        return None
    for text in (database, collection):
        text.decode()  # what is no UTF-8 is not taken as it stands
    return database, collection, length
