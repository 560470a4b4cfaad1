"""Locates the documents in a raw reply of ``find``, without decoding them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.errors import ConnectionFailed
from tailrace.event.bson import (
    ARRAY,
    DOCUMENT,
    INT32,
    INT32_TYPE,
    INT64,
    INT64_TYPE,
    STRING,
    TIMESTAMP,
    elements,
    string_at,
    timestamp_at,
    walk,
)


@dataclass(frozen=True, slots=True)
class Found:
    """One reply to ``find``, or to a ``getMore`` of its cursor.

    Document ``i`` is ``buffer[bounds[2 * i] : bounds[2 * i + 1]]``. ``time`` is the cluster time at
    which the server read, if it tells.
    """

    buffer: bytes
    bounds: Sequence[int]
    cursor_id: int = 0
    namespace: str = ""
    time: Timestamp | None = None

    def __len__(self) -> int:
        return len(self.bounds) // 2


def read_found(raw: bytes) -> Found:
    """Reads one reply. Raises ``ConnectionFailed`` for one without a cursor: a broken server."""
    try:
        return _read(raw)
    except (KeyError, ValueError, struct.error) as error:
        raise ConnectionFailed(f"the server's reply is not a cursor: {error!r}") from error


def _read(raw: bytes) -> Found:
    kind, at = elements(raw, 0)[b"cursor"]
    if kind != DOCUMENT:
        raise ValueError("cursor is not a document")
    cursor = elements(raw, at)
    kind, batch = cursor.get(b"nextBatch") or cursor[b"firstBatch"]
    if kind != ARRAY:
        raise ValueError("the batch is not an array")
    kind, at = cursor[b"id"]
    if kind not in (INT32_TYPE, INT64_TYPE):
        raise ValueError("the cursor's id is not a whole number")
    cursor_id: int = INT64(raw, at)[0] if kind == INT64_TYPE else INT32(raw, at)[0]
    kind, at = cursor.get(b"ns", (0, 0))
    namespace = string_at(raw, at) if kind == STRING else ""
    kind, at = cursor.get(b"atClusterTime", (0, 0))
    time = timestamp_at(raw, at) if kind == TIMESTAMP else None
    return Found(raw, _bounds(raw, batch), cursor_id, namespace, time)


def _bounds(buffer: bytes, start: int) -> Sequence[int]:
    """The bounds of the documents in the array at ``start``.

    The name of an element is its index as text, so its length is known.
    """
    position, end = start + 4, start + INT32(buffer, start)[0] - 1
    bounds: list[int] = []
    append, digits, next_digits, number = bounds.append, 3, 10, 0
    while position < end:
        if number == next_digits:
            digits, next_digits = digits + 1, next_digits * 10
        if buffer[position] != DOCUMENT:
            raise ValueError("the batch holds something that is not a document")
        at = position + digits
        append(at)
        position = at + INT32(buffer, at)[0]
        append(position)
        number += 1
    if position != end:
        return [each for _, _, begin, close in walk(buffer, start) for each in (begin, close)]
    return bounds
