"""Extended JSON from raw BSON: the specification's shapes, whatever the bytes are.

``bson.json_util`` is the judge wherever it can be: for every type that decoding keeps. The types
that it loses are written by hand, as the corpus of the specification has them.
"""

import json
import math
import struct
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import json_util
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
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.event.extended_json import to_json

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
CANONICAL = json_util.CANONICAL_JSON_OPTIONS.with_options(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, tz_aware=True
)
RELAXED = json_util.RELAXED_JSON_OPTIONS

INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)
TEXT = st.text(max_size=8)
NAMES = st.text('ab.$"\\\n\x1f\u2028é€😀', max_size=6)
DECIMALS = st.one_of(
    st.builds("{}E{}".format, st.integers(1 - 10**34, 10**34 - 1), st.integers(-6000, 6000)),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "-0", "1E+6144", "1E-6176", "0.00"]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    INT64.map(Int64),
    st.floats().map(lambda value: math.nan if value != value else value),  # one NaN in JSON
    TEXT,
    st.binary(min_size=12, max_size=12).map(ObjectId),
    INT64.map(DatetimeMS),
    st.integers(-(10**13), 10**14).map(DatetimeMS),
    st.builds(Binary, st.binary(max_size=20), st.integers(0, 255)),
    st.builds(Timestamp, UINT32, UINT32),
    DECIMALS.map(Decimal128),
    st.builds(Regex, NAMES, st.sampled_from(["", "i", "im", "imsx"])),
    TEXT.map(Code),
    st.sampled_from([MinKey(), MaxKey()]),
)


def containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    documents = st.dictionaries(NAMES, values, max_size=3)
    return st.one_of(documents, st.lists(values, max_size=3), st.builds(Code, TEXT, documents))


DOCUMENTS = st.dictionaries(NAMES, st.recursive(SCALARS, containers, max_leaves=6), max_size=5)


BOUNDED = settings(max_examples=60, deadline=None)


def element(kind: int, payload: bytes, name: bytes = b"a") -> bytes:
    """One BSON element."""
    return bytes([kind]) + name + b"\0" + payload


def document(*elements: bytes) -> bytes:
    """A BSON document of raw elements."""
    body = b"".join(elements)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def text(value: bytes) -> bytes:
    """A BSON string."""
    return struct.pack("<i", len(value) + 1) + value + b"\0"


@BOUNDED
@given(DOCUMENTS)
def test_text_is_that_of_json_util(value: dict[str, Any]) -> None:
    """The canonical text leads back to the same bytes; the relaxed one tells 1, 1.0 and -0.0."""
    raw = bson.encode(value)
    line, decoded = to_json(raw, canonical=True), bson.decode(raw, CODEC)
    assert json.loads(line) == json.loads(json_util.dumps(decoded, json_options=CANONICAL))
    assert bson.encode(json_util.loads(line, json_options=CANONICAL)) == raw
    expected = json.loads(json_util.dumps(decoded, json_options=RELAXED))
    assert json.dumps(json.loads(to_json(raw, canonical=False))) == json.dumps(expected)


@BOUNDED
@given(DOCUMENTS, st.data())
def test_damaged_bytes_are_reported_and_nothing_else(value: dict[str, Any], data: Any) -> None:
    """A flipped byte or a cut gives JSON or ``ValueError``: no other error, no endless loop."""
    raw = bytearray(bson.encode(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
        raw[:4] = struct.pack("<i", len(raw))
    with suppress(ValueError):
        json.loads(to_json(bytes(raw), canonical=True))


@BOUNDED
@given(
    st.one_of(st.binary(min_size=16, max_size=16), DECIMALS.map(lambda text: Decimal128(text).bid))
)
def test_decimals_are_written_as_pymongo_writes_them(bid: bytes) -> None:
    """Whatever the bytes are: infinities, other layouts, and coefficients that are too large."""
    line = to_json(document(element(0x13, bid)), canonical=True)
    assert json.loads(line) == {"a": {"$numberDecimal": str(Decimal128.from_bid(bid))}}


# From the BSON corpus: https://github.com/mongodb/specifications/tree/master/source/bson-corpus
OID = bytes.fromhex("56e1fc72e0c917e9c4714161")
INT = b"\1\0\0\0"
WRITTEN_BY_HAND = [
    (0x0E, text(b"abc"), {"$symbol": "abc"}),
    (0x06, b"", {"$undefined": True}),
    (0x0C, text(b"b") + OID, {"$dbPointer": {"$ref": "b", "$id": {"$oid": OID.hex()}}}),
    (0x05, b"\6\0\0\0\2\2\0\0\0\xff\xff", {"$binary": {"base64": "//8=", "subType": "02"}}),
    (0x05, b"\2\0\0\0\x80\xff\xff", {"$binary": {"base64": "//8=", "subType": "80"}}),
    (0x0B, b"abc\0xmi\0", {"$regularExpression": {"pattern": "abc", "options": "imx"}}),
    (0x0F, b"\x0e\0\0\0" + text(b"") + document(), {"$code": "", "$scope": {}}),
    (
        0x0F,
        b"\x18\0\0\0" + text(b"abc") + document(element(0x10, INT)),
        {"$code": "abc", "$scope": {"a": {"$numberInt": "1"}}},
    ),
    (0x04, document(element(0x0A, b"", b"7"), element(0x08, b"\1", b"")), [None, True]),
    (0x01, bytes.fromhex("120000000000f87f"), {"$numberDouble": "NaN"}),
]


@pytest.mark.parametrize(("kind", "payload", "expected"), WRITTEN_BY_HAND)
def test_types_that_decoding_loses(kind: int, payload: bytes, expected: Any) -> None:
    """Deprecated types and odd encodings keep the shape that the specification gives them."""
    raw = document(element(kind, payload))
    assert json.loads(to_json(raw, canonical=True)) == {"a": expected}


def test_repeated_keys_stay_in_their_order() -> None:
    """BSON allows a key twice, and an archive must not choose between the two."""
    raw = document(element(0x10, INT), element(0x10, b"\2\0\0\0"))
    assert to_json(raw, canonical=False) == '{"a":1,"a":2}'


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01T00:00:00Z"),
        (datetime(2012, 12, 24, 12, 15, 30, 501_000, tzinfo=UTC), "2012-12-24T12:15:30.501Z"),
        (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), "9999-12-31T23:59:59.999Z"),
        (DatetimeMS(-1), {"$numberLong": "-1"}),
        (DatetimeMS(253_402_300_800_000), {"$numberLong": "253402300800000"}),
    ],
)
def test_relaxed_dates_are_iso_8601_where_the_years_allow(moment: Any, expected: Any) -> None:
    raw = bson.encode({"a": moment})
    assert json.loads(to_json(raw, canonical=False)) == {"a": {"$date": expected}}


def test_text_stays_unicode_and_bytes_that_are_not_become_replacements() -> None:
    raw = document(
        element(0x02, text("é€\u2028😀".encode())), element(0x02, text(b"\xff"), b"\xfe")
    )
    assert to_json(raw, canonical=True) == '{"a":"é€\u2028😀","\ufffd":"\ufffd"}'


def test_more_field_names_than_are_kept_come_out_right() -> None:
    names = [f"name-{n}" for n in range(5000)]
    raw = bson.encode(dict.fromkeys(names))
    assert list(json.loads(to_json(raw, canonical=True))) == names


def test_documents_may_be_nested_as_deep_as_the_server_allows() -> None:
    """200 levels (mongod, src/mongo/bson/bson_depth.h); more is an error like any other."""
    raw = document()
    for depth in range(5000):
        if depth == 200:
            assert to_json(raw, canonical=True).count("{") == 201
        raw = document(element(0x03, raw))
    with pytest.raises(ValueError, match="nested too deeply"):
        to_json(raw, canonical=True)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "offset 0"),
        (b"\5\0\0\0", "offset 0"),
        (struct.pack("<i", 6) + b"\0", "offset 0"),
        (struct.pack("<i", 5) + b"\1", "offset 4: the document has no terminator"),
        (document(b"\x21a\0"), "offset 4: no element of a known type"),
        (document(b"\x10a\0\1"), "offset 4: the element reaches"),
        (document(element(0x03, document(b"\x10a\0\1\2"))), "offset 11: the element reaches"),
        (document(b"\x10a"), "offset 4"),
        (document(element(0x08, b"\2")), "offset 7: a boolean is 0 or 1, not 2"),
        (document(element(0x02, struct.pack("<i", 3) + b"a\0b")), "offset 7: the string's"),
        (document(element(0x02, struct.pack("<i", -1) + b"a\0")), "offset 4"),
        (document(element(0x02, struct.pack("<i", 99) + b"a\0")), "offset 4"),
        (document(element(0x03, struct.pack("<i", 99) + b"\0")), "offset 4"),
        (document(element(0x05, struct.pack("<iB", 9, 0))), "offset 4"),
        (document(element(0x05, struct.pack("<iBi", 6, 2, 3) + b"ab")), "inner length"),
        (document(element(0x0F, struct.pack("<ii", 14, 99) + b"a\0\0\0\0\0")), "code with scope"),
    ],
)
def test_malformed_documents_are_named_with_their_offset(raw: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_json(raw, canonical=True)
