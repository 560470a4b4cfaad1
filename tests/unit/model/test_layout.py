"""Fields found by their place: what walking and decoding find as well, whatever stands there."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import product
from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from service.model import ChangeEvent, layout
from service.model.batch import join, of_documents
from service.model.event import CODEC, Namespace
from service.model.event_array import survey
from tests.unit.model.documents import documents, names, quick, scalars, timestamps

LSID = {"id": Binary(b"i" * 16, 4), "uid": b"u" * 32}
ORDERS = {"db": "shop", "coll": "orders"}

tokens = st.text("0123456789ABCDEF", max_size=40).map(lambda data: {"_data": data})
operations = st.sampled_from(
    ["insert", "update", "replace", "delete", "drop", "refineCollectionShardKey", "", "日本"]
)
ids = st.one_of(st.binary(min_size=12, max_size=12).map(ObjectId), scalars)
keys = st.one_of(
    st.builds(lambda one: {"_id": one}, ids),
    st.builds(lambda one, shard: {"region": shard, "_id": one}, ids, scalars),
    st.just({"region": "eu"}),
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """In mongod's order, with or without each field; user data that looks like an event's own."""
    image = st.one_of(st.none(), documents, st.just({"ns": ORDERS, "documentKey": {"_id": 0}}))
    optional = {
        "clusterTime": timestamps,
        "collectionUUID": st.just(Binary(b"c" * 16, 4)),
        "wallTime": st.just(datetime(2026, 1, 1, tzinfo=UTC)),
        "txnNumber": st.just(Int64(3)),
        "lsid": st.sampled_from([LSID, {**LSID, "txnNumber": Int64(1)}]),
        "fullDocument": image,
        "ns": st.builds(lambda db, coll: {"db": db, "coll": coll}, names, names),
        "documentKey": keys,
        "updateDescription": documents,
        "fullDocumentBeforeChange": image,
    }
    event: dict[str, Any] = {"_id": draw(tokens), "operationType": draw(operations)}
    event |= {name: draw(values) for name, values in optional.items() if draw(st.booleans())}
    return event if draw(st.integers(0, 4)) else dict(reversed(event.items()))


@quick
@given(events(), st.binary(max_size=3))
def test_places_are_what_decoding_finds(event: dict[str, Any], before: bytes) -> None:
    raw = bson.encode(event)
    lazy = ChangeEvent(before + raw + b"behind", len(before))
    expected = bson.decode(raw, CODEC)
    assert lazy.id == expected["_id"]
    assert lazy.operation_type == expected["operationType"]
    assert lazy.cluster_time == expected.get("clusterTime")
    ns = expected.get("ns")
    assert lazy.ns == (Namespace(ns["db"], ns["coll"]) if ns else None)
    assert repr(lazy.document_key) == repr(expected.get("documentKey"))
    assert repr(lazy.full_document) == repr(expected.get("fullDocument"))
    assert lazy.full_document is lazy.full_document
    assert lazy.raw == raw


@quick
@given(events(), st.binary(max_size=3))
def test_the_transaction_of_an_event(event: dict[str, Any], before: bytes) -> None:
    raw = bson.encode(event)
    buffer = before + raw + bson.encode({"txnNumber": Int64(1), "lsid": LSID})
    found = layout.transaction_at(buffer, len(before), len(before) + len(raw))
    if "lsid" not in event or "txnNumber" not in event:
        assert found is None
        return
    time = bson.encode({"": event["clusterTime"]})[6:14] if "clusterTime" in event else b""
    number = event["txnNumber"].to_bytes(8, "little")
    assert found == (bson.encode(event["lsid"]) + number, time)


@quick
@given(events(), events())
def test_lanes_are_equal_where_keys_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    if "documentKey" in one:
        other["documentKey"] = one["documentKey"]
    if "ns" in one:
        other["ns"] = one["ns"]
    first, second = ChangeEvent.from_document(one), ChangeEvent.from_document(other)
    assert (first.lane == second.lane) is (first.key == second.key)
    assert (first.lane is None) is (first.key is None)


IDS = [ObjectId(), 7, Int64(7), "seven", 7.5, None, Binary(b"u" * 16, 4), {"a": 1}, Decimal128("7")]


@pytest.mark.parametrize("identity", IDS, ids=repr)
def test_all_events_of_a_document_have_its_lane(identity: Any) -> None:
    """Found by its place or by walking, alone or in a transaction, before sharding and after."""
    event = {"_id": {"_data": "82"}, "operationType": "insert", "clusterTime": Timestamp(1, 1)}
    inside = {**event, "lsid": {**LSID, "txnNumber": Int64(1)}, "txnNumber": Int64(3)}
    lanes = {
        ChangeEvent.from_document({**around, "ns": ORDERS, "documentKey": key}).lane
        for around in (event, inside)
        for key in ({"_id": identity}, {"region": "eu", "_id": identity}, {"_id": identity, "n": 1})
    }
    moved = {**event, "ns": {**ORDERS, "coll": "x"}, "documentKey": {"_id": identity}}
    assert len(lanes) == 1
    assert ChangeEvent.from_document(moved).lane not in lanes


@pytest.mark.parametrize(
    ("one", "other"),
    [(7, Int64(7)), (7, 7.0), (Int64(-(2**62)), -(2.0**62)), (0, -0.0), (2**53, 2.0**53)],
    ids=repr,
)
def test_numbers_that_are_equal_are_one_document(one: Any, other: Any) -> None:
    """As they are for the server: deleted as one of them, it may be inserted as the other."""
    event = {"_id": {"_data": "82"}, "operationType": "insert", "clusterTime": Timestamp(1, 1)}
    lanes = {
        ChangeEvent.from_document({**event, "ns": ORDERS, "documentKey": {"_id": number}}).lane
        for number in (one, other)
    }
    assert len(lanes) == 1


def test_an_event_as_mongod_makes_it_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    def walked(*_: object) -> None:
        raise AssertionError("walked")

    monkeypatch.setattr(layout, "elements", walked)
    base = {"clusterTime": Timestamp(1, 1), "wallTime": datetime(2026, 1, 1, tzinfo=UTC)}
    images = {"insert": {"fullDocument": {"a": 1}}, "update": {"fullDocument": None}, "delete": {}}
    for (operation, image), identity in product(images.items(), IDS):
        place = {"ns": ORDERS, "documentKey": {"_id": identity}}
        whole = {"_id": {"_data": "82"}, "operationType": operation, **base, **image, **place}
        event = ChangeEvent.from_document({**whole, "updateDescription": {"updatedFields": {}}})
        assert event.lane is not None
        assert event.operation_type == operation
        assert event.cluster_time == Timestamp(1, 1)
        assert event.ns == Namespace("shop", "orders")
        assert event.document_key == {"_id": identity}


@quick
@given(st.lists(events(), max_size=9))
def test_a_survey_counts_types_and_finds_the_first_event_without_a_token(
    found: list[dict[str, Any]],
) -> None:
    types = Counter(event["operationType"] for event in found)
    assert of_documents(found).operations() == types
    encoded = [bson.encode(event) for event in found]
    nameless = bson.encode({"operationType": "insert", "fullDocument": {"_id": {"_data": "82"}}})
    result = survey(*join([*encoded, nameless, *encoded]))
    assert (result.nameless, result.operations) == (len(found), types)


def test_a_survey_of_long_names_is_exact() -> None:
    """Names that are alike in all that is looked at first, and tokens of different lengths."""
    long = ["refineCollectionShardKey", "refineCollectionShardKex", "dropDatabase", "x" * 19]
    found = [
        {"_id": {"_data": "8" * number}, "operationType": name} for number, name in enumerate(long)
    ]
    assert of_documents(found).operations() == Counter(long)
