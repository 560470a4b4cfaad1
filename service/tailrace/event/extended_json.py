"""BSON to MongoDB Extended JSON v2, straight from the bytes.

Decoding with ``bson`` first would lose what a faithful copy must keep: symbol, undefined and
dbPointer become other types, repeated keys collapse, the width of an integer is a matter of
luck. So this module walks the BSON itself. It stands beside the jsonl handler's hot path; hence
the one loop, the explicit stack instead of recursion, and the common types written out in it.

What Extended JSON itself cannot say is lost all the same: the payload of a NaN, and the
difference between an ObjectId and a document ``{"$oid": "…"}`` that an application stored.

Sources: https://bsonspec.org/spec.html and
https://github.com/mongodb/specifications/blob/master/source/extended-json/extended-json.md
"""

from __future__ import annotations

import struct

from tailrace.event.json_scalars import SCALARS, MalformedError, int32_at, quote, string_at

_SMALLEST = 5
"""Bytes of the empty document: its length and its terminator."""


class _Names(dict[bytes, str]):
    """Field names as they are written, ``"name":``. A stream repeats the same few for ever.

    Bounded: applications that use data as field names would fill it.
    """

    def __missing__(self, name: bytes) -> str:
        text = f"{quote(name.decode('utf-8', 'replace'))}:"
        if len(name) <= 64:
            if len(self) >= 4096:
                self.clear()
            self[name] = text
        return text


_NAMES = _Names()


def to_json(raw: bytes, *, canonical: bool) -> str:
    """One BSON document as one line of Extended JSON v2, canonical or relaxed.

    Keys keep their order and their repetitions. Text stays Unicode; bytes that are not UTF-8
    become U+FFFD. Raises ``ValueError``, with the offset, where the BSON is malformed.
    """
    if len(raw) < _SMALLEST or int32_at(raw, 0)[0] != len(raw):
        raise ValueError(
            f"malformed BSON at offset 0: the length inside does not match the {len(raw)} bytes"
        )
    try:
        return _walk(raw, canonical)
    except MalformedError as error:
        raise ValueError(str(error)) from None


def _walk(raw: bytes, canonical: bool) -> str:
    """Every container collects the texts of its elements in ``parts`` and is joined at its end.

    ``last`` is where the terminator of the innermost open container has to be. An element that
    reaches beyond it is noticed when the next one begins, so no type checks that itself; reading
    beyond the whole buffer raises, and is reported as the element that did it.
    """
    parts: list[str] = []
    stack: list[tuple[list[str], int, bool, str, str]] = []
    position, last, in_array, opening, closing = 4, len(raw) - 1, False, "{", "}"
    start = position
    index, names, int32 = raw.index, _NAMES, int32_at
    try:
        while True:
            if position >= last:
                if position > last:
                    raise MalformedError(start, "the element reaches beyond its container")
                if raw[last]:
                    raise MalformedError(last, "the container has no terminator")
                text = f"{opening}{','.join(parts)}{closing}"
                if not stack:
                    return text
                position += 1
                parts, last, in_array, opening, closing = stack.pop()
                parts.append(text)
                continue

            start = position
            kind = raw[position]
            name_end = index(b"\0", position + 1)
            head = "" if in_array else names[raw[position + 1 : name_end]]
            position = name_end + 1

            if kind == 0x02:
                begin = position + 4
                position = begin + int32(raw, position)[0]
                if position <= begin or raw[position - 1]:
                    raise MalformedError(start, "the string's length does not match its end")
                parts.append(head + quote(raw[begin : position - 1].decode("utf-8", "replace")))
            elif kind == 0x10:
                (number,) = int32(raw, position)
                position += 4
                parts.append(
                    f'{head}{{"$numberInt":"{number}"}}' if canonical else f"{head}{number}"
                )
            elif kind == 0x07:
                begin = position
                position += 12
                parts.append(f'{head}{{"$oid":"{raw[begin:position].hex()}"}}')
            elif kind == 0x03 or kind == 0x04:
                end = position + int32(raw, position)[0]
                if not position + _SMALLEST <= end <= last:
                    raise MalformedError(start, "the length does not fit its container")
                stack.append((parts, last, in_array, opening, closing))
                parts, last, position = [], end - 1, position + 4
                if kind == 0x04:
                    in_array, opening, closing = True, head + "[", "]"
                else:
                    in_array, opening, closing = False, head + "{", "}"
            elif kind == 0x0F:
                text, position, end = _code_with_scope(raw, position, last)
                stack.append((parts, last, in_array, opening, closing))
                parts, last, in_array = [], end - 1, False
                opening, closing = f'{head}{{"$code":{text},"$scope":{{', "}}"
            else:
                write = SCALARS.get(kind)
                if write is None:
                    raise MalformedError(start, f"unknown type 0x{kind:02X}")
                text, position = write(raw, position, canonical)
                parts.append(head + text)
    except (IndexError, ValueError, struct.error):
        raise MalformedError(start, "the element is cut off") from None


def _container_end(raw: bytes, position: int, last: int) -> int:
    """Where an embedded document ends; it has to leave room for its parent's terminator."""
    end = position + int32_at(raw, position)[0]
    if not position + _SMALLEST <= end <= last:
        raise MalformedError(position, "the embedded length does not fit its container")
    return end


def _code_with_scope(raw: bytes, position: int, last: int) -> tuple[str, int, int]:
    """The code, where the scope's elements begin, and where the scope ends."""
    end = _container_end(raw, position, last)
    text, scope = string_at(raw, position + 4)
    if _container_end(raw, scope, end) != end:
        raise MalformedError(position, "the length of code with scope does not match its parts")
    return text, scope + 4, end
