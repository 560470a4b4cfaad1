"""How each scalar of BSON is written in Extended JSON v2: one function a type.

Each takes the bytes, where the value begins, and whether the canonical form is wanted; it returns
the text and where the value ends.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable
from datetime import date, timedelta
from functools import lru_cache
from json.encoder import encode_basestring
from typing import cast

from bson.decimal128 import Decimal128

int32_at = cast("Callable[[bytes, int], tuple[int]]", struct.Struct("<i").unpack_from)
_int64 = cast("Callable[[bytes, int], tuple[int]]", struct.Struct("<q").unpack_from)
_double = cast("Callable[[bytes, int], tuple[float]]", struct.Struct("<d").unpack_from)
_timestamp = cast("Callable[[bytes, int], tuple[int, int]]", struct.Struct("<II").unpack_from)

quote = encode_basestring
_EPOCH = date(1970, 1, 1)
_LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: beyond it (and before 1970) relaxed dates are numbers."""


class MalformedError(Exception):
    """What is wrong, and where; becomes the ``ValueError`` that callers see."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(f"malformed BSON at offset {offset}: {message}")


def string_at(raw: bytes, position: int) -> tuple[str, int]:
    """A string in quotes, and where it ends."""
    begin = position + 4
    end = begin + int32_at(raw, position)[0]
    if end <= begin or raw[end - 1]:
        raise MalformedError(position, "the string's length does not match its end")
    return quote(raw[begin : end - 1].decode("utf-8", "replace")), end


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
    end = begin + int32_at(raw, position)[0]
    subtype = raw[position + 4]
    if not begin <= end < len(raw):
        raise MalformedError(position, "the binary's length does not fit its container")
    if subtype == 0x02:  # the old kind repeats the length inside; Extended JSON does not
        begin += 4
        if begin > end or int32_at(raw, begin - 4)[0] != end - begin:
            raise MalformedError(position, "the binary's inner length does not match")
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
        raise MalformedError(position, f"a boolean is 0 or 1, not {value}")
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
    text = f'{{"pattern":{quote(pattern)},"options":{quote(options)}}}'
    return f'{{"$regularExpression":{text}}}', position


def _write_db_pointer(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    namespace, position = string_at(raw, position)
    end = position + 12
    identity = f'{{"$oid":"{raw[position:end].hex()}"}}'
    return f'{{"$dbPointer":{{"$ref":{namespace},"$id":{identity}}}}}', end


def _write_code(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    text, position = string_at(raw, position)
    return f'{{"$code":{text}}}', position


def _write_symbol(raw: bytes, position: int, canonical: bool) -> tuple[str, int]:
    text, position = string_at(raw, position)
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


SCALARS: dict[int, Callable[[bytes, int, bool], tuple[str, int]]] = {
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
