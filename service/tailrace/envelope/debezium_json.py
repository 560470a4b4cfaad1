"""The JSON in Debezium's messages: documents in the "strict" form, which is Extended JSON v1.

Sources: ``JsonMode.STRICT`` of MongoDB's Java driver, and
https://www.mongodb.com/docs/manual/reference/mongodb-extended-json-v1/. MongoDB's parsers read both
versions.
"""

import json
from binascii import b2a_base64
from datetime import datetime, timedelta
from json.encoder import encode_basestring as quote
from typing import Any

from bson import Binary, Decimal128, Int64
from bson.timestamp import Timestamp

from tailrace.event import bson
from tailrace.event.bson import INT64, OBJECT_ID, walk
from tailrace.event.extended_json import CANONICAL, RELAXED, Writers
from tailrace.event.json_lines import Form, decimal_object, timestamp_object, wrapping

_EPOCH, _MILLISECOND = datetime(1970, 1, 1), timedelta(milliseconds=1)


def id_text(key: bytes) -> bytes:
    """The ``_id`` of a document key as Debezium writes it: relaxed, with spaces after colons."""
    for name, kind, at, end in walk(key, 0):
        if name == b"_id":
            if kind == OBJECT_ID:
                return b'{"$oid": "%b"}' % key[at:end].hex().encode()
            text = RELAXED[kind](key, at, end, RELAXED)
            if text[0] in "{[":
                separators = (",", ": ")
                text = json.dumps(json.loads(text), ensure_ascii=False, separators=separators)
            return text.encode()
    return b"null"


def quoted(text: bytes) -> bytes:
    """A JSON text in a JSON string. It has no control characters, so two replacements suffice."""
    return b'"%b"' % escaped(text)


def escaped(text: bytes) -> bytes:
    """The same, without the quotation marks around it."""
    return text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _date(raw: bytes, start: int, end: int, writers: Writers) -> str:
    return f'{{"$date":{INT64(raw, start)[0]}}}'


def _binary(raw: bytes, start: int, end: int, writers: Writers) -> str:
    parts = json.loads(RELAXED[bson.BINARY](raw, start, end, writers))["$binary"]
    return f'{{"$binary":"{parts["base64"]}","$type":"{parts["subType"]}"}}'


def _regex(raw: bytes, start: int, end: int, writers: Writers) -> str:
    parts = json.loads(RELAXED[bson.REGEX](raw, start, end, writers))["$regularExpression"]
    return f'{{"$regex":{quote(parts["pattern"])},"$options":{quote(parts["options"])}}}'


def _db_pointer(raw: bytes, start: int, end: int, writers: Writers) -> str:
    return RELAXED[bson.DB_POINTER](raw, start, end, writers)[len('{"$dbPointer":') : -1]


def _binary_object(value: bytes) -> Any:
    subtype = value.subtype if isinstance(value, Binary) else 0
    text = b2a_base64(value, newline=False).decode("ascii")
    return {"$binary": text, "$type": f"{subtype:02x}"}


STRICT = Form(
    {
        **RELAXED,
        bson.INT64_TYPE: CANONICAL[bson.INT64_TYPE],
        bson.DATE: _date,
        bson.BINARY: _binary,
        bson.REGEX: _regex,
        bson.DB_POINTER: _db_pointer,
    },
    wrapping(
        {
            Int64: lambda value: {"$numberLong": str(value)},
            datetime: lambda value: {"$date": (value - _EPOCH) // _MILLISECOND},
            Timestamp: timestamp_object,
            Decimal128: decimal_object,
            Binary: _binary_object,
            bytes: _binary_object,
        }
    ),
)
