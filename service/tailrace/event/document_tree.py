"""Documents as Python dictionaries and lists, of BSON or of its canonical Extended JSON.

PyMongo would turn symbol, undefined and dbPointer into other types. Its reader of Extended JSON
takes documents of applications for values, too (``{"$uuid": "…"}``), or refuses them (``{"$date":
"soon"}``). Here each value keeps its type and its bytes, and text is read as
:mod:`tailrace.event.extended_json` writes it: all else that has such names is a document. Of a
repeated name, the last one counts.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import error, pack
from typing import Any

from bson import InvalidBSON, InvalidDocument, decode, encode
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from tailrace.event import bson
from tailrace.event.bson import encoded, string_value, walk
from tailrace.event.raw_fields import element

_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_MS
)
_BEFORE = bson.EMPTY_DOCUMENT + len(b"\0")
"""Bytes before the only field of a document, whose name is empty."""


class _Bare(int):
    """A number as it is in JSON, which canonical text has only within some values."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value that PyMongo does not keep: its type and bytes in BSON."""

    kind: int
    raw: bytes


def tree_of(document: bytes | str) -> dict[str, Any]:
    """BSON, or canonical Extended JSON. Raises ``ValueError`` if it is malformed."""
    if isinstance(document, bytes):
        return _decoded(document) or _document(document)
    found = json.loads(document, object_pairs_hook=_object, parse_int=_Bare)
    if not isinstance(found, dict):
        raise ValueError("it is not the text of a document")
    return found


def to_bson(tree: Mapping[str, Any]) -> bytes:
    """The tree as BSON."""
    try:
        return _encoded(tree)
    except (InvalidDocument, UnicodeEncodeError):
        return encoded(b"".join(_element(_bytes(name), tree[name]) for name in tree))


def _encoded(tree: Mapping[str, Any]) -> bytes:
    """As a field: in a document of its own, PyMongo puts ``_id`` first."""
    return encode({"": tree})[_BEFORE:-1]


def _decoded(raw: bytes) -> dict[str, Any] | None:
    """What PyMongo, which is quick, makes of the document; ``None`` if that is not the same."""
    if b"\x02$ref\0" in raw:
        return None  # a DBRef, through which no path leads
    try:
        found = decode(raw, _CODEC)
        return found if _encoded(found) == raw else None
    except (InvalidBSON, InvalidDocument):
        return None


def _document(raw: bytes) -> dict[str, Any]:
    fields = walk(raw, 0)
    return {_text(name): _value(kind, raw[at:end]) for name, kind, at, end in fields}


def _value(kind: int, raw: bytes) -> Any:
    match kind:
        case bson.DOCUMENT:
            return _document(raw)
        case bson.ARRAY:
            return [_value(each, raw[at:end]) for _, each, at, end in walk(raw, 0)]
        case bson.STRING:
            return _text(raw[4:-1])
        case bson.INT32_TYPE | bson.INT64_TYPE:
            number = int.from_bytes(raw, "little", signed=True)
            return number if kind == bson.INT32_TYPE else Int64(number)
        case bson.NULL:
            return None
    return Value(kind, raw)


def _element(name: bytes, value: Any) -> bytes:
    match value:
        case Value():
            return element(value.kind, name, value.raw)
        case str() if not isinstance(value, Code):
            return element(bson.STRING, name, _string(value))
        case dict():
            return element(bson.DOCUMENT, name, to_bson(value))
        case list():
            items = (_element(b"%d" % at, each) for at, each in enumerate(value))
            return element(bson.ARRAY, name, encoded(b"".join(items)))
    kind, raw = (found := encode({"": value}))[4], found[_BEFORE:-1]
    return element(kind, name, raw)


def _text(raw: bytes) -> str:
    """Bytes that are not UTF-8 come back from :func:`_bytes`."""
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _string(text: str) -> bytes:
    return string_value(_bytes(text))


def _object(pairs: Sequence[tuple[str, Any]]) -> Any:
    """A document, or the value for which it stands."""
    if len(pairs) == 1:
        ((name, inside),) = pairs
        if (reader := _READERS.get(name)) is not None:
            try:
                value = reader(inside)
            except (ValueError, TypeError, KeyError, ArithmeticError, error):
                value = None
            return {name: inside} if value is None else value  # an application's document
    elif len(pairs) == 2 and (*dict(pairs),) == ("$code", "$scope"):
        (_, code), (_, scope) = pairs
        if isinstance(code, str) and isinstance(scope, dict):
            raw = _string(code) + to_bson(scope)
            return Value(bson.CODE_WITH_SCOPE, pack("<i", len(raw) + 4) + raw)
    return dict(pairs)


def _int32(text: str) -> int | None:
    number = int(text)
    return number if str(number) == text and -(2**31) <= number < 2**31 else None


def _int64(text: str) -> Int64 | None:
    number = int(text)
    return Int64(number) if str(number) == text and -(2**63) <= number < 2**63 else None


def _double(text: str) -> float | None:
    number = float(text)
    return number if text == _NOT_FINITE.get(repr(number), repr(number)) else None


def _decimal(text: str) -> Decimal128 | None:
    number = Decimal128(text)
    return number if str(number) == text else None


def _object_id(text: str) -> ObjectId | None:
    return ObjectId(text) if len(text) == _DIGITS and text == text.lower() else None


def _date(milliseconds: Any) -> DatetimeMS | None:
    return DatetimeMS(int(milliseconds)) if isinstance(milliseconds, Int64) else None


def _binary(inside: Mapping[str, Any]) -> Binary | None:
    text, subtype = _fields(inside, "base64", "subType")
    data, (kind,) = b64decode(text, validate=True), bytes.fromhex(subtype)
    is_same = b64encode(data).decode() == text and f"{kind:02x}" == subtype
    return Binary(data, kind) if is_same else None


def _regex(inside: Mapping[str, Any]) -> Any:
    pattern, options = _fields(inside, "pattern", "options")
    if "\0" in pattern + options or "".join(sorted(options)) != options:
        return None
    if {*options} <= _KNOWN:
        return Regex(pattern, options)
    return Value(bson.REGEX, b"%b\0%b\0" % (_bytes(pattern), _bytes(options)))


def _timestamp(inside: Mapping[str, Any]) -> Timestamp | None:
    seconds, increment = _fields(inside, "t", "i")
    is_bare = isinstance(seconds, _Bare) and isinstance(increment, _Bare)
    return Timestamp(seconds, increment) if is_bare else None


def _db_pointer(inside: Mapping[str, Any]) -> Value | None:
    namespace, id = _fields(inside, "$ref", "$id")
    is_pointer = isinstance(namespace, str) and isinstance(id, ObjectId)
    return Value(bson.DB_POINTER, _string(namespace) + id.binary) if is_pointer else None


def _fields(inside: Mapping[str, Any], *names: str) -> Sequence[Any]:
    """The values of exactly these fields. Raises ``KeyError`` if there are others."""
    if not isinstance(inside, dict) or (*inside,) != names:
        raise KeyError(names)
    return (*inside.values(),)


def _constant(made: Any, found: Any) -> Callable[[Any], Any]:
    """For a type with one value. ``True`` and ``1`` are equal to Python."""
    of_type = type(found)
    return lambda inside: made if type(inside) is of_type and inside == found else None


def _of_text(make: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda text: make(text) if isinstance(text, str) else None


_DIGITS = 24
_KNOWN = frozenset("ilmsux")
"""The options of a pattern that PyMongo keeps."""
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "$numberInt": _of_text(_int32),
    "$numberLong": _of_text(_int64),
    "$numberDouble": _of_text(_double),
    "$numberDecimal": _of_text(_decimal),
    "$oid": _of_text(_object_id),
    "$date": _date,
    "$binary": _binary,
    "$regularExpression": _regex,
    "$timestamp": _timestamp,
    "$dbPointer": _db_pointer,
    "$code": _of_text(Code),
    "$symbol": _of_text(lambda text: Value(bson.SYMBOL, _string(text))),
    "$undefined": _constant(Value(bson.UNDEFINED, b""), True),
    "$minKey": _constant(MinKey(), _Bare(1)),
    "$maxKey": _constant(MaxKey(), _Bare(1)),
}
"""By the name that begins a value: reads what is in it, or finds that it is a document's field."""
