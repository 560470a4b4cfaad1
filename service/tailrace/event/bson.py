"""Elements of raw BSON, found without decoding their values (https://bsonspec.org/spec.html)."""

from collections.abc import Iterator
from struct import Struct, error

from bson.timestamp import Timestamp

INT32 = Struct("<i").unpack_from
UINT32 = Struct("<I").unpack_from
INT64 = Struct("<q").unpack_from
UINT64 = Struct("<Q").unpack_from
FLOAT64 = Struct("<d").unpack_from

DOUBLE, STRING, DOCUMENT, ARRAY, BINARY = 0x01, 0x02, 0x03, 0x04, 0x05
OBJECT_ID, BOOLEAN, DATE, NULL, CODE, SYMBOL = 0x07, 0x08, 0x09, 0x0A, 0x0D, 0x0E
CODE_WITH_SCOPE, INT32_TYPE, TIMESTAMP, INT64_TYPE, DECIMAL = 0x0F, 0x10, 0x11, 0x12, 0x13
UNDEFINED, REGEX, DB_POINTER, MAX_KEY, MIN_KEY = 0x06, 0x0B, 0x0C, 0x7F, 0xFF

EMPTY_DOCUMENT = 5
"""The size of a document without elements: its length and its terminator."""

FIXED = {
    **dict.fromkeys((UNDEFINED, NULL, MAX_KEY, MIN_KEY), 0),
    **dict.fromkeys((DOUBLE, DATE, TIMESTAMP, INT64_TYPE), 8),
    BOOLEAN: 1,
    INT32_TYPE: 4,
    OBJECT_ID: 12,
    DECIMAL: 16,
}
"""By type: the bytes of a value of fixed size."""

# By type: the bytes of a value that its leading length does not count, and the least such length.
_MEASURED = {
    **dict.fromkeys((DOCUMENT, ARRAY, CODE_WITH_SCOPE), (0, EMPTY_DOCUMENT)),
    **dict.fromkeys((STRING, CODE, SYMBOL), (4, 1)),
    BINARY: (5, 0),
    DB_POINTER: (16, 1),
}


def walk(buffer: bytes, start: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Every element of the document at ``start``, in order: name, type, start and end of its value.

    Raises ``ValueError`` with an offset at the first malformed byte.
    """
    try:
        last = start + INT32(buffer, start)[0] - 1
    except error:
        raise malformed(start, "the document is cut off") from None
    yield from walk_between(buffer, start + 4, last)


def walk_between(buffer: bytes, position: int, last: int) -> Iterator[tuple[bytes, int, int, int]]:
    """The elements from ``position`` to the document's terminator at ``last``, as :func:`walk`."""
    fixed = FIXED.get
    while position < last:
        begin = position
        try:
            kind = buffer[begin]
            value = buffer.index(0, begin + 1) + 1
            size = fixed(kind)
            position = value + (measured(buffer, kind, value) if size is None else size)
        except (IndexError, ValueError, error):
            raise malformed(begin, "no element of a known type and size") from None
        if position > last:
            raise malformed(begin, "the element reaches beyond its document")
        yield buffer[begin + 1 : value - 1], kind, value, position
    if position != last or buffer[last : last + 1] != b"\0":
        raise malformed(last, "the document has no terminator")


def measured(buffer: bytes, kind: int, value: int) -> int:
    """The bytes of a value that contains its own size."""
    if kind == REGEX:
        options: int = buffer.index(0, value) + 1
        return buffer.index(0, options) + 1 - value
    try:
        more, least = _MEASURED[kind]
    except KeyError:
        raise ValueError(kind) from None
    length: int = INT32(buffer, value)[0]
    if length < least:
        raise ValueError(length)
    return more + length


def malformed(offset: int, reason: str) -> ValueError:
    """The error for bytes that are not BSON."""
    return ValueError(f"malformed BSON at offset {offset}: {reason}")


def elements(buffer: bytes, start: int) -> dict[bytes, tuple[int, int]]:
    """Type and offset of each value of the document at ``start``, by name; the last if repeated."""
    return {name: (kind, value) for name, kind, value, _ in walk(buffer, start)}


def spans(buffer: bytes, start: int) -> dict[bytes, tuple[int, int, int]]:
    """The elements of the document at ``start`` by name: type, start and end of the element."""
    return {name: (kind, at - len(name) - 2, end) for name, kind, at, end in walk(buffer, start)}


def encoded(elements: bytes) -> bytes:
    """The document with these elements."""
    return (len(elements) + EMPTY_DOCUMENT).to_bytes(4, "little") + elements + b"\0"


def document_at(buffer: bytes, start: int) -> bytes:
    """The bytes of the document or array at ``start``."""
    return buffer[start : start + INT32(buffer, start)[0]]


def string_at(buffer: bytes, start: int) -> str:
    """The UTF-8 string whose value begins at ``start``."""
    length = INT32(buffer, start)[0]
    return buffer[start + 4 : start + 3 + length].decode("utf-8", "replace")


def string_value(text: bytes) -> bytes:
    """The value of a string with this UTF-8."""
    return (len(text) + 1).to_bytes(4, "little") + text + b"\0"


def timestamp_at(buffer: bytes, start: int) -> Timestamp:
    """The timestamp whose value begins at ``start``."""
    value = UINT64(buffer, start)[0]
    return Timestamp(value >> 32, value & 0xFFFFFFFF)
