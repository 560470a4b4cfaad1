"""Finding elements in raw BSON without decoding the rest (https://bsonspec.org/spec.html)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from struct import Struct

INT32 = Struct("<i").unpack_from
INT64 = Struct("<q").unpack_from
UINT64 = Struct("<Q").unpack_from
FLOAT64 = Struct("<d").unpack_from

DOCUMENT, ARRAY = 0x03, 0x04
STRING, OBJECT_ID, TIMESTAMP, INT32_TYPE, INT64_TYPE = 0x02, 0x07, 0x11, 0x10, 0x12
DOUBLE, BOOLEAN, NULL, SYMBOL = 0x01, 0x08, 0x0A, 0x0E

EMPTY_DOCUMENT = 5
"""Bytes of a document without elements: its length and its end."""

# Bytes of a value by its type, where that is fixed.
_FIXED = {
    0x01: 8,
    0x06: 0,
    0x07: 12,
    0x08: 1,
    0x09: 8,
    0x0A: 0,
    0x10: 4,
    0x11: 8,
    0x12: 8,
    0x13: 16,
    0x7F: 0,
    0xFF: 0,
}


def elements(buffer: bytes, start: int) -> dict[bytes, tuple[int, int]]:
    """Every element of the document at ``start``: its name to (type, offset of its value).

    Costs by the number of elements, not by their size. Raises ``ValueError`` where the bytes are
    no BSON document.
    """
    return {name: (kind, value) for name, kind, value, _ in walk(buffer, start)}


def find(buffer: bytes, start: int, name: bytes) -> tuple[int, int] | None:
    """Type and offset of the first element of that name: quicker where it is the first of all.

    Raises ``ValueError``, ``IndexError`` or ``struct.error`` where the bytes are no BSON document,
    if that shows before.
    """
    last = start + INT32(buffer, start)[0] - 1
    position = start + 4
    while position < last:
        kind = buffer[position]
        value = buffer.index(0, position + 1) + 1
        if buffer.startswith(name, position + 1) and value == position + 2 + len(name):
            return kind, value
        position = value_end(buffer, kind, value)
    return None


def spans(buffer: bytes, start: int) -> dict[bytes, tuple[int, int]]:
    """Every element of the document at ``start``: its name to where its bytes begin and end."""
    return {name: (at - len(name) - 2, end) for name, _, at, end in walk(buffer, start)}


def walk(buffer: bytes, start: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Every element in order, repeated names too: name, type, where its value begins and ends.

    Raises ``ValueError`` as :func:`elements` does, when it comes to what is wrong.
    """
    try:
        last = start + INT32(buffer, start)[0] - 1
        position = start + 4
        while position < last:
            kind = buffer[position]
            name_end = buffer.index(0, position + 1)
            value = name_end + 1
            name, position = buffer[position + 1 : name_end], value_end(buffer, kind, value)
            yield name, kind, value, position
        if position != last or buffer[last] != 0:
            raise ValueError("the document does not end where it says")
    except (IndexError, ValueError) as error:
        raise ValueError(f"malformed BSON after byte {start}") from error
    except struct.error as error:
        raise ValueError(f"truncated BSON after byte {start}") from error


def value_end(buffer: bytes, kind: int, value: int) -> int:
    """Where the value of that type ends that begins at ``value``.

    Raises ``ValueError``, ``IndexError`` or ``struct.error`` where it cannot be one.
    """
    size = _FIXED.get(kind)
    return value + (_size(buffer, kind, value) if size is None else size)


def _size(buffer: bytes, kind: int, value: int) -> int:
    """Of the types whose values tell it."""
    if kind in (DOCUMENT, ARRAY, 0x0F):
        return _at_least(EMPTY_DOCUMENT, INT32(buffer, value)[0])
    if kind in (STRING, 0x0D, 0x0E):
        return 4 + _at_least(1, INT32(buffer, value)[0])
    if kind == 0x05:
        return 5 + _at_least(0, INT32(buffer, value)[0])
    if kind == 0x0B:
        options = buffer.index(0, value) + 1
        return buffer.index(0, options) + 1 - value
    if kind == 0x0C:
        return 4 + _at_least(1, INT32(buffer, value)[0]) + 12
    raise ValueError(f"unknown BSON type {kind:#x}")


def _at_least(least: int, length: int) -> int:
    if length < least:
        raise ValueError(f"length {length}")
    return length


def document_at(buffer: bytes, start: int) -> bytes:
    """The bytes of the document or array at ``start``."""
    return buffer[start : start + INT32(buffer, start)[0]]


def string_at(buffer: bytes, start: int) -> str:
    """The UTF-8 string whose value begins at ``start``."""
    length = INT32(buffer, start)[0]
    return buffer[start + 4 : start + 3 + length].decode("utf-8", "replace")
