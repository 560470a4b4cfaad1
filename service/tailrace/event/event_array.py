"""Where the events of a reply lie, and what is asked of each before anything is decoded: one pass.

A reply's batch is a BSON array: its elements are named "0", "1", … and every one is a document. All
that is noted of an event is where its document begins and ends, its type, and whether it has a
token.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import cast

from tailrace.event.bson_walk import DOCUMENT, EMPTY_DOCUMENT, INT32, string_at
from tailrace.event.layout import TYPE, field_at, operation_at, token_at

_TYPE_BYTES = len(TYPE) + 4 + 20
"""Of a type with its field's name, and some of what follows, which is alike in events of a type."""
_NAMES = bytes(2 + len(str(number)) for number in range(100_000))
"""Bytes of each element before its value: its type, its number as text, and a zero. Of more events
than a reply of 16 MB can hold."""
_STRETCH = 4096
"""Events that are looked at together. Of more, bounds are kept in an array: as a list they have
five times its bytes, which are megabytes then; of fewer the list is quicker to read."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What is to be known of a reply at once: the types of its events, by count.

    ``nameless`` is the index of the first event without a token in ``_id``; those before it are
    counted.
    """

    operations: Mapping[str, int]
    nameless: int | None = None


def survey_array(buffer: bytes, start: int) -> tuple[Sequence[int], Survey]:
    """Bounds and survey of the array at ``start``.

    Event ``i`` is ``buffer[bounds[2 * i] : bounds[2 * i + 1]]``. Raises ``ValueError`` or
    ``struct.error`` where the bytes are no array of documents.
    """
    return _only(buffer, start) or _alike(buffer, start) or _each(buffer, start)


def survey(buffer: bytes, bounds: Sequence[int]) -> Survey:
    """Looks at every event of a reply that is laid out already."""
    operations: Counter[str] = Counter()
    for number, begin in enumerate(bounds[::2]):
        if field_at(buffer, begin, b"_id") is None:
            return Survey(operations, number)
        operations[operation_at(buffer, begin)] += 1
    return Survey(operations)


def _only(buffer: bytes, start: int) -> tuple[Sequence[int], Survey] | None:
    """The one event of an idle stream's reply.

    There all that is done is cold, and done before a handler is called: the short way counts.
    """
    end, begin = start + INT32(buffer, start)[0] - 1, start + 4 + _NAMES[0]
    if begin > end or begin + INT32(buffer, begin)[0] != end:
        return None
    at = token_at(buffer, begin)
    if not at:
        return None
    at += INT32(buffer, at)[0]
    if not buffer.startswith(TYPE, at):
        return None
    return [begin, end], Survey({string_at(buffer, at + len(TYPE)): 1})


def _alike(buffer: bytes, start: int) -> tuple[Sequence[int], Survey] | None:
    """The pass over events that mongod has made: the token by its place, then the type.

    ``None`` where anything is otherwise.
    """
    end, position = start + INT32(buffer, start)[0] - 1, start + 4
    bounds, types = _stretch(buffer, position, end, _NAMES[:_STRETCH])
    kinds = Counter(types)
    if len(types) == _STRETCH:
        bounds = array("Q", bounds)
        for first in range(_STRETCH, len(_NAMES), _STRETCH):
            more, types = _stretch(buffer, bounds[-1], end, _NAMES[first : first + _STRETCH])
            bounds.extend(more)
            kinds.update(types)
            if len(types) < _STRETCH:
                break
    if (bounds[-1] if bounds else position) != end:
        return None
    operations: dict[str, int] = {}
    for text, count in kinds.items():
        if not text.startswith(TYPE) or text.find(b"\0", len(TYPE) + 4) < 0:
            return None
        operation = string_at(text, len(TYPE))
        operations[operation] = operations.get(operation, 0) + count
    return bounds, Survey(operations)


def _stretch(
    buffer: bytes, position: int, end: int, names: bytes
) -> tuple[MutableSequence[int], list[bytes]]:
    """Bounds of the next events, up to one for each name, and what stands behind their tokens.

    That is gathered, and told apart only when all are counted. Fewer where one is otherwise: the
    end of the array looks so too, and is known by its place.
    """
    bounds: list[int] = []
    seen: list[bytes] = []
    append, note = bounds.append, seen.append
    head, read = b"", _NO_HEAD
    with suppress(struct.error):  # the end of the buffer may be near
        for name in names:
            at = position + name
            length, first, text = read(buffer, at)
            if first != head:  # another transaction or length of the token than before, or the end
                if position >= end or not (token := token_at(buffer, at)):
                    break
                head = buffer[at + 4 : token + 4]
                read = _reader(len(head), INT32(buffer, token)[0])
                length, first, text = read(buffer, at)
            append(at)
            note(text)
            position = at + length
            append(position)
    return bounds, seen


@lru_cache(256)
def _reader(head: int, token: int) -> Callable[[bytes, int], tuple[int, bytes, bytes]]:
    """Reads an event's length, what comes first as far as to the token's length, and its type.

    ``head`` is how many bytes come first, ``token`` the token's length. The event's own is read as
    unsigned: one that is wrong leads to where no event is, or beyond the array, but never back.
    """
    skipped = max(token - 4, 0)
    layout = Struct(f"<I{head}s{skipped}x{_TYPE_BYTES}s")
    return cast("Callable[[bytes, int], tuple[int, bytes, bytes]]", layout.unpack_from)


_NO_HEAD = _reader(1, 0)


def _each(buffer: bytes, start: int) -> tuple[Sequence[int], Survey]:
    """The same for any array of documents."""
    end, position = start + INT32(buffer, start)[0] - 1, start + 4
    bounds: list[int] = []
    while position < end:
        if buffer[position] != DOCUMENT:
            raise ValueError("the batch holds something that is no document")
        at = buffer.index(0, position + 1) + 1
        length = INT32(buffer, at)[0]
        if length < EMPTY_DOCUMENT:
            raise ValueError("an event is too short for a document")
        position = at + length
        bounds += at, position
    if position != end:
        raise ValueError("the batch does not end where it says")
    return bounds, survey(buffer, bounds)
