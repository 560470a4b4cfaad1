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
from base64 import b64encode
from collections.abc import Callable
from datetime import date, timedelta
from functools import lru_cache
from json.encoder import encode_basestring as _quote
from typing import cast

from bson.decimal128 import Decimal128

_int32 = cast("Callable[[bytes, int], tuple[int]]", struct.Struct("<i").unpack_from)
_int64 = cast("Callable[[bytes, int], tuple[int]]", struct.Struct("<q").unpack_from)
_double = cast("Callable[[bytes, int], tuple[float]]", struct.Struct("<d").unpack_from)
_timestamp = cast("Callable[[bytes, int], tuple[int, int]]", struct.Struct("<II").unpack_from)

_EPOCH = date(1970, 1, 1)
_LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: beyond it (and before 1970) relaxed dates are numbers."""

_SMALLEST = 5
"""Bytes of the empty document: its length and its terminator."""


class _MalformedError(Exception):
    """What is wrong, and where; becomes the ``ValueError`` that callers see."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(f"malformed BSON at offset {offset}: {message}")


class _Names(dict[bytes, str]):
    """Field names as they are written, ``"name":``. A stream repeats the same few for ever.

    Bounded: applications that use data as field names would fill it.
    """

    def __missing__(self, name: bytes) -> str:
        text = f"{_quote(name.decode('utf-8', 'replace'))}:"
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
    if len(raw) < _SMALLEST or _int32(raw, 0)[0] != len(raw):
        raise ValueError(
            f"malformed BSON at offset 0: the length inside does not match the {len(raw)} bytes"
        )
    try:
        return _walk(raw, canonical)
    except _MalformedError as error:
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
    index, names, quote, int32 = raw.index, _NAMES, _quote, _int32
    try:
        while True:
            if position >= last:
                if position > last:
                    raise _MalformedError(start, "the element reaches beyond its container")
                if raw[last]:
                    raise _MalformedError(last, "the container has no terminator")
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
                    raise _MalformedError(start, "the string's length does not match its end")
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
                    raise _MalformedError(start, "the length does not fit its container")
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
                write = _SCALARS.get(kind)
                if write is None:
                    raise _MalformedError(start, f"unknown type 0x{kind:02X}")
                text, position = write(raw, position, canonical)
                parts.append(head + text)
    except (IndexError, ValueError, struct.error):
        raise _MalformedError(start, "the element is cut off") from None


# --- sizes and strings ---------------------------------------------------------------------


def _container_end(raw: bytes, position: int, last: int) -> int:
    """Where an embedded document ends; it has to leave room for its parent's terminator."""
    end = position + _int32(raw, position)[0]
    if not position + _SMALLEST <= end <= last:
        raise _MalformedError(position, "the embedded length does not fit its container")
    return end


def _code_with_scope(raw: bytes, position: int, last: int) -> tuple[str, int, int]:
    """The code, where the scope's elements begin, and where the scope ends."""
    end = _container_end(raw, position, last)
    text, scope = _string(raw, position + 4)
    if _container_end(raw, scope, end) != end:
        raise _MalformedError(position, "the length of code with scope does not match its parts")
    return text, scope + 4, end


def _string(raw: bytes, position: int) -> tuple[str, int]:
    begin = position + 4
    end = begin + _int32(raw, position)[0]
    if end <= begin or raw[end - 1]:
        raise _MalformedError(position, "the string's length does not match its end")
    return _quote(raw[begin : end - 1].decode("utf-8", "replace")), end


def _cstring(raw: bytes, position: int) -> tuple[str, int]:
    end = raw.index(b"\0", position)
    return raw[position:end].decode("utf-8", "replace"), end + 1


# --- one function per scalar type: (bytes, where, canonical) --------------


def _write_double(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    (value,) = _double(raw, position)
    if value - value == 0.0:  # finite
        text = f'{{"$numberDouble":"{value!r}"}}' if canonical else repr(value)
    elif value != value:
        text = '{"$numberDouble":"NaN"}'
    else:
        text = f'{{"$numberDouble":"{"-" if value < 0 else ""}Infinity"}}'
    return text, position + 8


def _write_binary(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    begin = position + 5
    end = begin + _int32(raw, position)[0]
    subtype = raw[position + 4]
    if not begin <= end < len(raw):
        raise _MalformedError(position, "the binary's length does not fit its container")
    if subtype == 0x02:  # the old kind repeats the length inside; Extended JSON does not
        begin += 4
        if begin > end or _int32(raw, begin - 4)[0] != end - begin:
            raise _MalformedError(position, "the binary's inner length does not match")
    base64 = b64encode(raw[begin:end]).decode("ascii")
    return f'{{"$binary":{{"base64":"{base64}","subType":"{subtype:02x}"}}}}', end


def _write_undefined(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    return '{"$undefined":true}', position


def _write_object_id(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    end = position + 12
    return f'{{"$oid":"{raw[position:end].hex()}"}}', end


def _write_bool(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    value = raw[position]
    if value > 1:
        raise _MalformedError(position, f"a boolean is 0 or 1, not {value}")
    return ("true" if value else "false"), position + 1


def _write_date(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    (ms,) = _int64(raw, position)
    if canonical or not 0 <= ms <= _LAST_MS:
        return f'{{"$date":{{"$numberLong":"{ms}"}}}}', position + 8
    days, ms = divmod(ms, 86_400_000)
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    clock = "%02d:%02d:%02d" % (hours, minutes, seconds)  # noqa: UP031 - twice as quick
    fraction = f".{ms:03d}" if ms else ""
    return f'{{"$date":"{_day(days)}T{clock}{fraction}Z"}}', position + 8


@lru_cache(1024)
def _day(days: int) -> str:
    return (_EPOCH + timedelta(days)).isoformat()


def _write_null(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    return "null", position


def _write_regex(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    pattern, position = _cstring(raw, position)
    options, position = _cstring(raw, position)
    options = "".join(sorted(options))  # both specifications want them in alphabetical order
    text = f'{{"pattern":{_quote(pattern)},"options":{_quote(options)}}}'
    return f'{{"$regularExpression":{text}}}', position


def _write_db_pointer(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    namespace, position = _string(raw, position)
    end = position + 12
    identity = f'{{"$oid":"{raw[position:end].hex()}"}}'
    return f'{{"$dbPointer":{{"$ref":{namespace},"$id":{identity}}}}}', end


def _write_code(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    text, position = _string(raw, position)
    return f'{{"$code":{text}}}', position


def _write_symbol(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    text, position = _string(raw, position)
    return f'{{"$symbol":{text}}}', position


def _write_timestamp(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    increment, seconds = _timestamp(raw, position)
    return f'{{"$timestamp":{{"t":{seconds},"i":{increment}}}}}', position + 8


def _write_int64(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    (number,) = _int64(raw, position)
    return (f'{{"$numberLong":"{number}"}}' if canonical else str(number)), position + 8


def _write_decimal128(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    end = position + 16
    return f'{{"$numberDecimal":"{Decimal128.from_bid(raw[position:end])}"}}', end


def _write_min_key(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    return '{"$minKey":1}', position


def _write_max_key(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    return '{"$maxKey":1}', position


_SCALARS: dict[int, Callable[[bytes, int, bool], tuple[str, int]]] = {
    0x01: _write_double,
    0x05: _write_binary,
    0x06: _write_undefined,
    0x07: _write_object_id,
    0x08: _write_bool,
    0x09: _write_date,
    0x0A: _write_null,
    0x0B: _write_regex,
    0x0C: _write_db_pointer,
    0x0D: _write_code,
    0x0E: _write_symbol,
    0x11: _write_timestamp,
    0x12: _write_int64,
    0x13: _write_decimal128,
    0x7F: _write_max_key,
    0xFF: _write_min_key,
}
