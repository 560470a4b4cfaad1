"""Keys are equal for events of one document, and for no others.

Which values the server holds to be equal is asked of mongod in tests/integration.
"""

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, ObjectId
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event import ChangeEvent
from tailrace.event.document_key import identity, key_text
from tailrace.event.key import read_key_text
from tests.scripted.wire import in_order
from tests.unit.event.documents import EVERY_ID, quick, values
from tests.unit.event.events import IN_TRANSACTION, LSID, ORDERS

EVENT = {"_id": {"_data": "82"}, "operationType": "insert", "clusterTime": Timestamp(1, 1)}


def key(identity: Any, **fields: Any) -> bytes | None:
    """That of an event of the document with that ``_id``."""
    event = {**EVENT, "ns": ORDERS, "documentKey": {"_id": identity}, **fields}
    return ChangeEvent(in_order(event)).key


@pytest.mark.parametrize("value", EVERY_ID.values(), ids=EVERY_ID)
def test_all_events_of_a_document_have_its_key(value: Any) -> None:
    """Found by its place or by walking, alone or in a transaction, before sharding and after."""
    inside = {**IN_TRANSACTION, **EVENT}
    other = {**EVENT, "lsid": {**LSID, "txnNumber": Int64(1)}, "txnNumber": Int64(3)}
    keys = {
        ChangeEvent(in_order({**around, "ns": ORDERS, "documentKey": document_key})).key
        for around in (EVENT, inside, other)
        for document_key in ({"_id": value}, {"region": "eu", "_id": value}, {"_id": value, "n": 1})
    }
    assert keys == {key(value)}
    assert key(value) not in (None, key("another"))
    assert key(value, ns={**ORDERS, "coll": "items"}) != key(value)


DIFFERENT = [
    *(7, "7", b"7", True, 1, Decimal128("0.1"), 0.1, None, {}, [], "", {"a": 1}, [1], {"a": True}),
    *({"a": 1, "b": 2}, {"b": 2, "a": 1}, Binary(b"7", 5), ObjectId(b"0" * 12), math.nan, math.inf),
    *(datetime(2026, 1, 1, tzinfo=UTC), Code("7"), Timestamp(0, 7), Decimal128("1E+6000")),
]


def test_ids_that_only_look_alike_are_their_own_keys() -> None:
    assert len({key(value) for value in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize(
    "equal",
    [
        (7, Int64(7), 7.0, Decimal128("7"), Decimal128("7.00"), Decimal128("0.7E+1")),
        (0, -0.0, Decimal128("-0E-3")),
        (Int64(-(2**62)), -(2.0**62)),
        (2.0**64, Decimal128(str(2**64))),
        (1.5, Decimal128("1.50")),
        (Decimal128("0.1"), Decimal128("0.100")),
        (math.nan, -math.nan, Decimal128("NaN"), Decimal128("-NaN")),
        (-math.inf, Decimal128("-Infinity")),
        ({"a": [7, {"b": 7}]}, {"a": [7.0, {"b": Int64(7)}]}),
        (Code("x", {"a": 1}), Code("x", {"a": 1.0})),
    ],
    ids=repr,
)
def test_values_that_are_equal_are_one_document(equal: tuple[Any, ...]) -> None:
    """As they are for the server: deleted as one of them, it may be inserted as the other."""
    assert len({key(value) for value in equal}) == 1


def test_a_symbol_is_its_text() -> None:
    text = bson.encode({"_id": "x"})
    assert identity(text.replace(b"\x02_id", b"\x0e_id"), 0) == identity(text, 0)


def equality(value: Any) -> Any:
    """A decoded value as something that is equal where the server's comparison says so."""
    if isinstance(value, Decimal128):
        value = value.to_decimal()
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, float, Decimal)):
        return "NaN" if value != value else ("number", Decimal(value))
    if isinstance(value, dict):
        return "document", [(name, equality(each)) for name, each in value.items()]
    if isinstance(value, list):
        return "array", [equality(each) for each in value]
    if isinstance(value, Code):
        return "code", str(value), equality(value.scope)
    if isinstance(value, bytes):
        return "binary", getattr(value, "subtype", 0), bytes(value)
    return repr(value)


numbers = st.one_of(
    st.integers(-3, 3),
    st.integers(-3, 3).map(Int64),
    st.sampled_from([-1.0, 0.5, -0.0, 1.0, math.nan, math.inf, 2.0**63]),
    st.sampled_from(["1", "0.50", "-1.0", "NaN", "0", "9223372036854775808"]).map(Decimal128),
)


@quick
@given(numbers | values, numbers | values)
def test_keys_are_equal_where_decoded_values_are(one: Any, other: Any) -> None:
    for first, second in ((one, other), ({"a": [one]}, {"a": [other]})):
        assert (key(first) == key(second)) is (equality(first) == equality(second))


def test_events_without_a_document_have_no_key_and_order_all() -> None:
    for event in ({"operationType": "drop", "ns": ORDERS}, {"operationType": "invalidate"}):
        assert ChangeEvent.from_document(event).key is None


def test_a_document_key_without_an_id_or_a_namespace_still_has_a_key() -> None:
    assert ChangeEvent.from_document({"documentKey": {"region": "eu"}}).key


def test_an_object_id_that_reaches_beyond_its_document_is_malformed() -> None:
    whole = bson.encode({"_id": ObjectId(b"0" * 12)})
    assert identity(whole, 0) == whole[4:-1]
    cut = (len(whole) - 4).to_bytes(4, "little") + whole[4:]
    with pytest.raises(ValueError, match="beyond its document"):
        identity(cut, 0)


@pytest.mark.parametrize("value", EVERY_ID.values(), ids=EVERY_ID)
def test_a_key_is_read_back_from_its_text(value: Any) -> None:
    written = bson.encode({"_id": value})
    _, raw = read_key_text(key_text(written))
    assert key_text(raw) == key_text(written)


@pytest.mark.parametrize("text", ["", "7", '{"n": 1}', '{"_id": ', '{"_id": {"$oid": "7"}}'])
def test_text_that_is_no_document_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no document key"):
        read_key_text(text)
