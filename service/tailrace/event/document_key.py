"""Defines which document an event is about: the one with this ``_id`` in this collection.

The rest of a sharded document's key changes during its life: see
:mod:`tailrace.event.document_identity`.

Values of ``_id`` that the server's unique index treats as equal are one document: deleted as ``7``,
it may be inserted again as ``NumberLong(7)`` (mongod, src/mongo/db/storage/key_string.cpp and
``compareElements`` in src/mongo/bson/bsonelement.cpp;
https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/):

- numbers of every type are compared by exact value; both zeros are equal, and so are all NaNs;
- symbols are compared as strings;
- documents, arrays and scopes of code are compared element by element, including names and order;
- all other values are compared by type and bytes.

``tests/integration/test_document_key.py`` compares this with mongod. An event does not contain the
collation of its collection: keys that only a collation makes equal are different here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, localcontext
from struct import pack
from typing import Any, TypeAlias

from bson import decode
from bson.decimal128 import Decimal128, create_decimal128_context
from bson.raw_bson import RawBSONDocument

from tailrace.event import bson
from tailrace.event.bson import FLOAT64, INT32, encoded, walk, walk_between
from tailrace.event.extended_json import to_json
from tailrace.event.layout import DOCUMENT_KEY, NAMESPACE, Parts
from tailrace.event.namespace import Namespace, namespace
from tailrace.event.raw_fields import element

_ID_OF_OBJECT = b"%c_id\0" % bson.OBJECT_ID
_ID_OF_INT64 = b"%c_id\0" % bson.INT64_TYPE
_ID_OF_INT32 = b"%c_id\0" % bson.INT32_TYPE
_NO_ID = b"%c_id\0" % bson.NULL
_NAME = b"_id\0"
_VALUE_AT = len(_NO_ID)
_INT32_KEY_BYTES = bson.EMPTY_DOCUMENT + _VALUE_AT + 4
_SIZES: Mapping[int, int] = {
    bson.OBJECT_ID: _VALUE_AT + 12,
    bson.INT32_TYPE: _VALUE_AT + 4,
    bson.INT64_TYPE: _VALUE_AT + 8,
    bson.DATE: _VALUE_AT + 8,
}
"""By type, the size of an ``_id`` as an element."""
_PREFIXED: Mapping[int, int] = {bson.STRING: _VALUE_AT + 4, bson.BINARY: _VALUE_AT + 5}
"""The same for types whose values begin with a length: what that leaves out."""
_OBJECT_ID_BYTES = len(_ID_OF_OBJECT) + 12
_OBJECT_ID_KEY_BYTES = bson.EMPTY_DOCUMENT + _OBJECT_ID_BYTES
_NAMESPACE = b"%cdb\0" % bson.STRING
"""A namespace begins so, after its length."""
_POSITIVE, _NEGATIVE = b"\0" * 4, b"\xff" * 4
"""The upper half of an int64 that was an int32."""
_NAN = pack("<d", float("nan"))
_CONTEXT = create_decimal128_context()

Keys: TypeAlias = dict[int, tuple[Parts, bytes | None]]
"""Parts and key of events by their offset, which several handlers share."""


def document_key(buffer: bytes, start: int, parts: Parts) -> bytes | None:
    """Collection and ``_id`` of the document of the event at ``start``; equal for equal documents.

    ``None`` if the event is not about one document. The rest of a sharded document's key may
    change, so it does not count. Raises ``ValueError`` if malformed BSON hides the key.
    """
    namespace, key = parts[NAMESPACE] or b"", parts[DOCUMENT_KEY]
    if key < 0:
        for _ in walk(buffer, start):
            pass
        return None
    at = key + 4
    first = buffer[at : at + _OBJECT_ID_BYTES]
    if first.startswith(_ID_OF_OBJECT):  # by far the most
        return namespace + first
    return namespace + (identity(buffer, key) or _NO_ID)


def identities(keys: Iterable[bytes | None]) -> Mapping[Namespace, Sequence[bytes]]:
    """The elements ``_id`` in keys of :func:`document_key`, by collection.

    Keys of events whose namespace a pipeline removed are left out.
    """
    elements: dict[Namespace, list[bytes]] = {}
    for key in keys:
        if key is not None and key.startswith(_NAMESPACE, 4):
            at = INT32(key, 0)[0]
            if (of := namespace(decode(key[:at]))) is not None:
                elements.setdefault(of, []).append(key[at:])
    return elements


def identity(buffer: bytes, key: int) -> bytes:
    """The ``_id`` of the document at ``key`` as a BSON element, equal for equal values, or b""."""
    at, last = key + 4, key + INT32(buffer, key)[0] - 1
    if buffer.startswith(_NAME, at + 1):  # by far the most, without a walk
        kind = buffer[at]
        size = _SIZES.get(kind, 0)
        if not size and kind in _PREFIXED:
            size = _PREFIXED[kind] + INT32(buffer, at + _VALUE_AT)[0]
        first = buffer[at : at + size]
        if at < at + size == at + len(first) <= last:
            return _int32_as_int64(first) if kind == bson.INT32_TYPE else first
    for name, kind, value, end in walk_between(buffer, at, last):
        if name == b"_id":
            return _element(buffer, name, kind, value, end)
    return b""


def _int32_as_int64(first: bytes) -> bytes:
    low = first[_VALUE_AT:]
    return _ID_OF_INT64 + low + (_NEGATIVE if low[3] > 127 else _POSITIVE)


def shard_key(key: bytes) -> dict[bytes, bytes]:
    """The fields of a document key beside ``_id``: by path, BSON elements equal for equal values.

    Empty for a document of a collection that is not sharded, or sharded by ``_id``.
    """
    if is_object_id(key):
        return {}
    fields = walk(key, 0)
    return {name: _element(key, name, *each) for name, *each in fields if name != b"_id"}


def id_alone(key: bytes) -> bytes:
    """The part ``{_id: …}`` of a document key; the key as it is if it has none."""
    if is_object_id(key):
        return key
    for name, _, value, end in walk(key, 0):
        if name == b"_id":
            return encoded(key[value - len(b"?_id\0") : end])
    return key


def is_like_pattern(key: bytes) -> bool:
    """Whether a query would read the value of a key ``{_id: …}`` as a pattern or as operators.

    A document that begins as a DBRef is a value (``src/mongo/db/matcher/expression_parser.cpp``,
    ``isExpressionDocument``).
    """
    value = key[4 + len(b"?_id\0") :]
    if key[4] == bson.DOCUMENT:
        return value.startswith(b"$", 5) and not value.startswith(b"$ref\0", 5)
    return key[4] == bson.REGEX


def equal_to(key: bytes) -> bytes:
    """``{$eq: …}`` for the value of a key ``{_id: …}``."""
    return encoded(key[4:5] + b"$eq\0" + key[4 + len(b"?_id\0") : -1])


def compare_with(operator: str, key: bytes) -> Mapping[str, Any]:
    """A filter that compares ``_id`` with the value of a key ``{_id: …}``, such as with ``$gt``.

    In the order of all types: ``{_id: {$gt: x}}`` finds only values of the type of ``x``. With the
    raw value: decoding would change some.
    """
    literal = encoded(key[4:5] + b"$literal\0" + key[4 + len(b"?_id\0") : -1])
    return {"$expr": {operator: ["$_id", RawBSONDocument(literal)]}}


def is_object_id(key: bytes) -> bool:
    """Whether a document key is an ObjectId ``_id`` and nothing else, as most are."""
    return len(key) == _OBJECT_ID_KEY_BYTES and key.startswith(_ID_OF_OBJECT, 4)


def key_text(key: bytes) -> str:
    """A document key as canonical Extended JSON. Raises ``ValueError`` if the BSON is malformed."""
    if is_object_id(key):
        return f'{{"_id":{{"$oid":"{key[-13:-1].hex()}"}}}}'
    if len(key) == _INT32_KEY_BYTES and key.startswith(_ID_OF_INT32, 4):
        return f'{{"_id":{{"$numberInt":"{INT32(key, 4 + _VALUE_AT)[0]}"}}}}'
    return to_json(key, canonical=True)


def _element(buffer: bytes, name: bytes, kind: int, value: int, end: int) -> bytes:
    raw = buffer[value:end]
    if kind in _COMPARED:
        kind, raw = _COMPARED[kind](raw)
    return element(kind, name, raw)


def _document(raw: bytes, start: int = 0) -> bytes:
    return encoded(b"".join([_element(raw, *each) for each in walk(raw, start)]))


def _code_with_scope(raw: bytes) -> tuple[int, bytes]:
    scope = 8 + INT32(raw, 4)[0]
    raw = raw[4:scope] + _document(raw, scope)
    return bson.CODE_WITH_SCOPE, (len(raw) + 4).to_bytes(4, "little") + raw


def _number(number: float) -> tuple[int, bytes]:
    """As int64 if it has such a value, else as a double."""
    if number.is_integer() and -(2.0**63) <= number < 2.0**63:
        return bson.INT64_TYPE, pack("<q", int(number))
    return bson.DOUBLE, _NAN if number != number else pack("<d", number)


def _decimal(number: Decimal) -> tuple[int, bytes]:
    """As int64 or double if that is exact, else without trailing zeros."""
    if number.is_nan():
        return bson.DOUBLE, _NAN
    if number == number.to_integral_value() and -(2**63) <= number < 2**63:
        return bson.INT64_TYPE, pack("<q", int(number))
    if float(number) == number:
        return _number(float(number))
    with localcontext(_CONTEXT):
        return bson.DECIMAL, Decimal128(number.normalize()).bid


_COMPARED: Mapping[int, Callable[[bytes], tuple[int, bytes]]] = {
    bson.INT32_TYPE: lambda raw: (bson.INT64_TYPE, pack("<q", INT32(raw, 0)[0])),
    bson.DOUBLE: lambda raw: _number(FLOAT64(raw, 0)[0]),
    bson.DECIMAL: lambda raw: _decimal(Decimal128.from_bid(raw).to_decimal()),
    bson.SYMBOL: lambda raw: (bson.STRING, raw),
    bson.DOCUMENT: lambda raw: (bson.DOCUMENT, _document(raw)),
    bson.ARRAY: lambda raw: (bson.ARRAY, _document(raw)),
    bson.CODE_WITH_SCOPE: _code_with_scope,
}
"""Types whose values are not compared by their bytes: gives the type and bytes to compare."""
