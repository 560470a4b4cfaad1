"""Converts BSON to MongoDB Extended JSON v2, without decoding.

Decoding would turn symbol, undefined and dbPointer into other types and drop repeated keys. Details
that Extended JSON cannot express are lost: the payload of a NaN, and the difference between an
ObjectId and a document ``{"$oid": "…"}`` that an application stored.

Source: https://github.com/mongodb/specifications/blob/master/source/extended-json/extended-json.md
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from functools import lru_cache
from json.encoder import encode_basestring as quote
from struct import Struct, error
from typing import TypeAlias

import orjson
from bson.decimal128 import Decimal128

from tailrace.event import bson
from tailrace.event.bson import FIXED, FLOAT64, INT32, INT64, malformed, measured, walk_between
from tailrace.event.memo import Memo

_INCREMENT_SECONDS = Struct("<II").unpack_from
_EPOCH = date(1970, 1, 1)

# https://github.com/mongodb/specifications/blob/master/source/bson-decimal128/decimal128.md
_DECIMAL_BIAS, _DECIMAL_DIGITS = 6176, 34
_UNUSUAL = 0x6000000000000000
"""The bits in the upper half of a decimal that is infinite, no number, or has another layout."""

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999. After it, and before 1970, relaxed dates are numbers."""

Writers: TypeAlias = "Mapping[int, Callable[[bytes, int, int, Writers], str]]"
"""By type, the function that writes a value. It gets the bytes, the start and end of the value, and
the writers for nested values."""


def to_json(raw: bytes, *, canonical: bool) -> str:
    """One BSON document as one line of Extended JSON v2, canonical or relaxed.

    Keys keep their order and repetitions. Text stays Unicode; bytes that are not UTF-8 become
    U+FFFD. Raises ``ValueError``, with the offset, if the BSON is malformed.
    """
    return written(raw, CANONICAL if canonical else RELAXED)


def written(raw: bytes, writers: Writers) -> str:
    """One BSON document as one line of the JSON that these writers make. Raises as above."""
    if len(raw) < bson.EMPTY_DOCUMENT or INT32(raw, 0)[0] != len(raw):
        raise malformed(0, f"the length inside does not match the {len(raw)} bytes")
    try:
        return _document(raw, 0, len(raw), writers)
    except (IndexError, error) as cut:
        raise malformed(0, "a value is cut off") from cut
    except RecursionError:
        raise malformed(0, "its documents are nested too deeply") from None


def _decimal(bid: bytes) -> str:
    """``str(Decimal128.from_bid(bid))``, which takes five times as long for a usual number."""
    high = int.from_bytes(bid[8:], "little")
    scale = _DECIMAL_BIAS - (high >> 49 & 0x3FFF)
    if scale >= 0 and high & _UNUSUAL != _UNUSUAL:
        digits = str((high & 0x1FFFFFFFFFFFF) << 64 | int.from_bytes(bid[:8], "little"))
        # A smaller number is written with an exponent; one with more digits counts as zero.
        if scale - len(digits) < 6 and len(digits) <= _DECIMAL_DIGITS:
            sign = "-" if high >> 63 else ""
            digits = digits.zfill(scale + 1)
            return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits
    return str(Decimal128.from_bid(bid))


_decimals: Memo[bytes, str] = Memo(_decimal)
_names: Memo[bytes, str] = Memo(lambda name: f"{quote(name.decode('utf-8', 'replace'))}:")
"""Field names as JSON, cached because a stream repeats the same few."""


def _document(raw: bytes, start: int, end: int, writers: Writers) -> str:
    # This is walk_between, whose generator would cost as much as the texts do.
    names, sizes, position, last = _names, FIXED, start + 4, end - 1
    texts = []
    while position < last:
        begin = position
        try:
            kind, value = raw[begin], raw.index(0, begin + 1) + 1
            size = sizes.get(kind)
            position = value + (measured(raw, kind, value) if size is None else size)
        except (IndexError, ValueError, error):
            break
        if position > last:
            break
        texts.append(
            names[raw[begin + 1 : value - 1]] + writers[kind](raw, value, position, writers)
        )
    if position != last or raw[last]:
        for _ in walk_between(raw, start + 4, last):  # raises, and says where
            pass
    return f"{{{','.join(texts)}}}"


def decimal_text(bid: bytes) -> str:
    """The text of a decimal; cached, because it is slow to make, and prices repeat."""
    return _decimals[bid]


def _array(raw: bytes, start: int, end: int, writers: Writers) -> str:
    texts = [
        writers[kind](raw, at, stop, writers)
        for _, kind, at, stop in walk_between(raw, start + 4, end - 1)
    ]
    return f"[{','.join(texts)}]"


def _string(raw: bytes, start: int, end: int, writers: Writers) -> str:
    if raw[end - 1]:
        raise malformed(start, "the string's length does not match its end")
    return quote(raw[start + 4 : end - 1].decode("utf-8", "replace"))


def _double(raw: bytes, start: int, end: int, writers: Writers) -> str:
    value = FLOAT64(raw, start)[0]
    if value - value == 0.0:  # finite
        return repr(value)
    name = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return f'{{"$numberDouble":"{name}"}}'


def _relaxed_double(raw: bytes, start: int, end: int, writers: Writers) -> str:
    """In the notation of orjson, which writes most relaxed documents: ``0.00001``, ``1e-7``."""
    value = FLOAT64(raw, start)[0]
    if value - value == 0.0:  # finite
        return orjson.dumps(value).decode()
    return _double(raw, start, end, writers)


def _canonical_double(raw: bytes, start: int, end: int, writers: Writers) -> str:
    text = _double(raw, start, end, writers)
    return text if text.startswith("{") else f'{{"$numberDouble":"{text}"}}'


def _binary(raw: bytes, start: int, end: int, writers: Writers) -> str:
    begin, subtype = start + 5, raw[start + 4]
    if subtype == 0x02:  # the old subtype repeats the length inside; Extended JSON does not
        begin += 4
        if begin > end or INT32(raw, begin - 4)[0] != end - begin:
            raise malformed(start, "the binary's inner length does not match")
    base64 = b64encode(raw[begin:end]).decode("ascii")
    return f'{{"$binary":{{"base64":"{base64}","subType":"{subtype:02x}"}}}}'


def _boolean(raw: bytes, start: int, end: int, writers: Writers) -> str:
    value = raw[start]
    if value > 1:
        raise malformed(start, f"a boolean is 0 or 1, not {value}")
    return "true" if value else "false"


def _canonical_date(raw: bytes, start: int, end: int, writers: Writers) -> str:
    return f'{{"$date":{{"$numberLong":"{INT64(raw, start)[0]}"}}}}'


def _date(raw: bytes, start: int, end: int, writers: Writers) -> str:
    ms: int = INT64(raw, start)[0]
    if not 0 <= ms <= LAST_MS:
        return _canonical_date(raw, start, end, writers)
    return f'{{"$date":"{date_text(ms)}"}}'


def date_text(ms: int) -> str:
    """A date as RFC 3339, from milliseconds since 1970, up to the year 9999."""
    days, ms = divmod(ms, 86_400_000)
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    return f"{_day(days)}T{clock}{f'.{ms:03}' if ms else ''}Z"


@lru_cache(1024)
def _day(days: int) -> str:
    return (_EPOCH + timedelta(days)).isoformat()


def _regex(raw: bytes, start: int, end: int, writers: Writers) -> str:
    pattern, options = (
        text.decode("utf-8", "replace") for text in raw[start : end - 1].split(b"\0")
    )
    options = "".join(sorted(options))  # both specifications require alphabetical order
    text = f'{{"pattern":{quote(pattern)},"options":{quote(options)}}}'
    return f'{{"$regularExpression":{text}}}'


def _db_pointer(raw: bytes, start: int, end: int, writers: Writers) -> str:
    namespace = _string(raw, start, end - 12, writers)
    identity = raw[end - 12 : end].hex()
    return f'{{"$dbPointer":{{"$ref":{namespace},"$id":{{"$oid":"{identity}"}}}}}}'


def _code_with_scope(raw: bytes, start: int, end: int, writers: Writers) -> str:
    scope = start + 8 + INT32(raw, start + 4)[0]
    if not start + 8 < scope < end or scope + INT32(raw, scope)[0] != end:
        raise malformed(start, "the length of code with scope does not match its parts")
    code = _string(raw, start + 4, scope, writers)
    return f'{{"$code":{code},"$scope":{_document(raw, scope, end, writers)}}}'


def _timestamp(raw: bytes, start: int, end: int, writers: Writers) -> str:
    increment, seconds = _INCREMENT_SECONDS(raw, start)
    return f'{{"$timestamp":{{"t":{seconds},"i":{increment}}}}}'


RELAXED: Writers = {
    bson.DOUBLE: _relaxed_double,
    bson.STRING: _string,
    bson.DOCUMENT: _document,
    bson.ARRAY: _array,
    bson.BINARY: _binary,
    bson.UNDEFINED: lambda raw, at, end, writers: '{"$undefined":true}',
    bson.OBJECT_ID: lambda raw, at, end, writers: f'{{"$oid":"{raw[at:end].hex()}"}}',
    bson.BOOLEAN: _boolean,
    bson.DATE: _date,
    bson.NULL: lambda raw, at, end, writers: "null",
    bson.REGEX: _regex,
    bson.DB_POINTER: _db_pointer,
    bson.CODE: lambda raw, at, end, writers: f'{{"$code":{_string(raw, at, end, writers)}}}',
    bson.SYMBOL: lambda raw, at, end, writers: f'{{"$symbol":{_string(raw, at, end, writers)}}}',
    bson.CODE_WITH_SCOPE: _code_with_scope,
    bson.INT32_TYPE: lambda raw, at, end, writers: str(INT32(raw, at)[0]),
    bson.TIMESTAMP: _timestamp,
    bson.INT64_TYPE: lambda raw, at, end, writers: str(INT64(raw, at)[0]),
    bson.DECIMAL: lambda raw, at, end, writers: (
        f'{{"$numberDecimal":"{decimal_text(raw[at:end])}"}}'
    ),
    bson.MIN_KEY: lambda raw, at, end, writers: '{"$minKey":1}',
    bson.MAX_KEY: lambda raw, at, end, writers: '{"$maxKey":1}',
}
CANONICAL: Writers = {
    **RELAXED,
    bson.DOUBLE: _canonical_double,
    bson.DATE: _canonical_date,
    bson.INT32_TYPE: lambda raw, at, end, writers: f'{{"$numberInt":"{INT32(raw, at)[0]}"}}',
    bson.INT64_TYPE: lambda raw, at, end, writers: f'{{"$numberLong":"{INT64(raw, at)[0]}"}}',
}
