"""A change event as one line of Extended JSON v2: :mod:`service.model.extended_json`, but quicker.

What surrounds the documents of an event is alike in all of them, and written as it is found by its
place. The documents are decoded and encoded in C, where nothing is lost by that; to know, they are
turned back into BSON, which must give the same bytes. All else is walked, and so is everything for
the canonical form, which tells integers apart that Python does not.
"""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import hexlify
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from struct import Struct
from typing import Any

import bson
import orjson
from bson import Binary, Decimal128, Int64, ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.timestamp import Timestamp

from service.model.bson_walk import INT32
from service.model.extended_json import to_json
from service.model.json_scalars import SCALARS

_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS

# The order of fields, and that these strings hold no zeros: see service.model.layout.
_HEAD = re.compile(
    rb"\x03_id\0.{4}\x02_data\0.{4}([0-9A-Fa-f]*)\0\0\x02operationType\0.{4}(\w*)\0"
    rb"\x11clusterTime\0(.{8})(?:\x09wallTime\0(.{8}))?(?:\x03(fullDocument)\0)?",
    re.DOTALL,
).match
_PLACE = re.compile(
    rb"(\x03ns\0.{4}\x02db\0.{4}[^\0]*\0\x02coll\0.{4}[^\0]*\0\0)"
    rb"\x03documentKey\0\x16\0\0\0\x07_id\0(.{12})\0(?:\x03(updateDescription)\0)?",
    re.DOTALL,
).match
_DOCUMENT = re.compile(
    rb"\x03(fullDocument|updateDescription|fullDocumentBeforeChange)\0", re.DOTALL
).match
_TIMESTAMP = Struct("<II").unpack
_NOT_FINITE = re.compile(rb"[\xf0-\xff][\x7f\xff]").search
"""The sign, the exponent and the first bits of a double that is no number or has no end."""


def json_line(raw: bytes, *, canonical: bool) -> bytes:
    """One event in Extended JSON v2, with the end of its line.

    It says what :func:`service.model.extended_json.to_json` does, and raises what that raises;
    numbers may be spelt otherwise.
    """
    line = None if canonical else _placed(raw)
    return line or to_json(raw, canonical=canonical).encode() + b"\n"


def _placed(raw: bytes) -> bytes | None:
    """The event, if it is laid out as mongod does."""
    head = _HEAD(raw, 4)
    if head is None or INT32(raw, 0)[0] != len(raw):
        return None
    token, operation, time, wall_time, document = head.groups()
    increment, seconds = _TIMESTAMP(time)
    parts = [
        b'{"_id":{"_data":"%b"},"operationType":"%b","clusterTime":{"$timestamp":{"t":%d,"i":%d}}'
        % (token, operation, seconds, increment)
    ]
    if wall_time is not None:
        parts.append(_wall_time(wall_time))
    at, last = head.end(), len(raw) - 1
    while True:
        if document is not None:  # named, and what comes next
            begin, at = at, at + INT32(raw, at)[0]
            parts.append(b'"%b":%b' % (document, _document(raw[begin:at])))
        if at >= last:
            break
        if place := _PLACE(raw, at):
            namespace, identity, document = place.groups()
            parts.append(
                b'%b,"documentKey":{"_id":{"$oid":"%b"}}'
                % (_namespace(namespace), hexlify(identity))
            )
            at = place.end()
        elif field := _DOCUMENT(raw, at):
            document, at = field[1], field.end()
        else:
            return None
    return b",".join(parts) + b"}\n" if at == last and raw[last] == 0 else None


def _document(raw: bytes) -> bytes:
    return _in_c(raw) or to_json(raw, canonical=False).encode()


@lru_cache(1024)  # where writing costs anything, many events share their millisecond
def _wall_time(date: bytes) -> bytes:
    return b'"wallTime":%b' % SCALARS[0x09](date, 0, False)[0].encode()


@lru_cache(1024)
def _namespace(element: bytes) -> bytes:
    document = (len(element) + 5).to_bytes(4, "little") + element + b"\0"
    return to_json(document, canonical=False)[1:-1].encode()


def _in_c(document: bytes) -> bytes | None:
    """Relaxed Extended JSON of a document, if decoding it loses nothing."""
    try:
        decoded = bson.decode(document, _CODEC)
        text = orjson.dumps(decoded, _wrapped, _OPTIONS)
        if bson.encode(decoded, codec_options=_CODEC) != document:
            return None  # types that Python has no equal of, repeated keys, text that is no UTF-8
    except (bson.errors.BSONError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    # orjson writes null for what is not finite. Most documents have neither byte, which is told at
    # a tenth of what the search takes.
    if (b"\x7f" in document or b"\xff" in document) and _NOT_FINITE(document) and b"null" in text:
        return None
    return text


def _wrapped(value: Any) -> Any:
    """What JSON has no type for. A type that is missing here is walked."""
    if value.__class__ is ObjectId:  # by far the most
        return {"$oid": value.binary.hex()}
    try:
        return _WRAPPERS[value.__class__](value)
    except KeyError:
        raise TypeError(value.__class__) from None


def _date(value: datetime) -> Any:
    if value.year < 1970:
        milliseconds = round((value.replace(tzinfo=UTC)).timestamp() * 1000)
        return {"$date": {"$numberLong": str(milliseconds)}}
    return {"$date": value.isoformat("T", "milliseconds" if value.microsecond else "seconds") + "Z"}


def _binary(value: bytes) -> Any:
    subtype = value.subtype if isinstance(value, Binary) else 0
    return {"$binary": {"base64": b64encode(value).decode("ascii"), "subType": f"{subtype:02x}"}}


_WRAPPERS: dict[type, Callable[[Any], Any]] = {
    Int64: int,
    datetime: _date,
    Timestamp: lambda value: {"$timestamp": {"t": value.time, "i": value.inc}},
    Decimal128: lambda value: {"$numberDecimal": str(value)},
    Binary: _binary,
    bytes: _binary,
}
