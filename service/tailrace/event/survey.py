"""Where the events in an array begin and end, and of which types they are, without decoding them.

If the driver decodes a reply, an event costs three to nine times as much.
"""

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import cast

from tailrace.event import bson
from tailrace.event.bson import INT32, walk
from tailrace.event.layout import TOKEN, TYPE, operation_type, parts, token_at

_TYPE_BYTES = len(TYPE) + 4 + 20
"""The operation type with the field's name, and some later bytes that events of a type share."""
_NAMES = b"".join(bytes([2 + n]) * (9 * 10 ** (n - 1) + (n == 1)) for n in range(1, 6))
"""For each element of an array, the number of bytes before its value: its type, its index as text,
and a zero. Enough elements for more events than a reply can hold."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Counts by operation type, up to the first event without a token (index ``nameless``)."""

    operations: Mapping[str, int]
    nameless: int | None = None


def survey_array(buffer: bytes, start: int) -> tuple[Sequence[int], Survey]:
    """Bounds and survey of the events in the array at ``start``; raises if it is malformed."""
    return _alike(buffer, start) or _each(buffer, start)


def survey(buffer: bytes, bounds: Sequence[int]) -> Survey:
    """The survey of events whose bounds are known."""
    operations: Counter[str] = Counter()
    for number, begin in enumerate(bounds[::2]):
        found = parts(buffer, begin)
        if found[TOKEN] < 0:
            return Survey(operations, number)
        operations[operation_type(found)] += 1
    return Survey(operations)


def _alike(buffer: bytes, start: int) -> tuple[Sequence[int], Survey] | None:
    """Bounds and survey of an array of events in mongod's order; ``None`` for any other array."""
    end, position = start + INT32(buffer, start)[0] - 1, start + 4
    bounds: list[int] = []
    types: list[bytes] = []
    append, note = bounds.append, types.append
    head, read = b"", _reader(1, 0)
    with suppress(ValueError, struct.error):  # another order, or the end of the buffer
        for name in _NAMES:
            at = position + name
            length, first, text = read(buffer, at)
            if first != head:  # another transaction or token length than before, or the end
                if position >= end:
                    break
                token = token_at(buffer, at)
                head = buffer[at + 4 : token + 4]
                read = _reader(len(head), INT32(buffer, token)[0])
                length, first, text = read(buffer, at)
            append(at)
            note(text)
            position = at + length
            append(position)
    if position != end:
        return None
    operations: dict[str, int] = {}
    for text, count in Counter(types).items():
        if not text.startswith(TYPE) or text.find(b"\0", len(TYPE) + 4) < 0:
            return None
        operation = bson.string_at(text, len(TYPE))
        operations[operation] = operations.get(operation, 0) + count
    return bounds, Survey(operations)


@lru_cache(256)
def _reader(head: int, token: int) -> Callable[[bytes, int], tuple[int, bytes, bytes]]:
    """Reads an event's length, its ``head`` bytes up to the token's length, and its operation type.

    The event's length is read as unsigned, so a wrong length never leads backwards.
    """
    layout = Struct(f"<I{head}s{max(token - 4, 0)}x{_TYPE_BYTES}s")
    return cast("Callable[[bytes, int], tuple[int, bytes, bytes]]", layout.unpack_from)


def _each(buffer: bytes, start: int) -> tuple[Sequence[int], Survey]:
    """The same as :func:`_alike`, for any array of documents."""
    bounds: list[int] = []
    for _, kind, begin, end in walk(buffer, start):
        if kind != bson.DOCUMENT:
            raise ValueError("the batch holds something that is not a document")
        bounds += begin, end
    return bounds, survey(buffer, bounds)
