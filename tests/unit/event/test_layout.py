"""Fields found by their place: what walking and decoding find as well, whatever stands there."""

from __future__ import annotations

import struct
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event import ChangeEvent, layout
from tailrace.event.batch import join, of_documents
from tailrace.event.bson_walk import document_at, elements
from tailrace.event.change_event import CODEC, Namespace
from tailrace.event.event_array import survey
from tests.scripted.wire import in_order
from tests.unit.event.documents import documents, names, quick, scalars, timestamps

LSID = {"id": Binary(b"i" * 16, 4), "uid": b"u" * 32}
ORDERS = {"db": "shop", "coll": "orders"}
IN_TRANSACTION = {"txnNumber": Int64(3), "lsid": LSID}

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
    required = {"_id": tokens, "operationType": operations}
    optional = {
        "clusterTime": timestamps,
        "collectionUUID": st.just(Binary(b"c" * 16, 4)),
        "wallTime": st.just(datetime(2026, 1, 1, tzinfo=UTC)),
        "fullDocument": image,
        "ns": st.builds(lambda db, coll: {"db": db, "coll": coll}, names, names),
        "documentKey": keys,
        "updateDescription": documents,
        "fullDocumentBeforeChange": image,
    }
    transaction = {
        "txnNumber": st.just(Int64(3)),
        "lsid": st.sampled_from([LSID, LSID, {**LSID, "txnNumber": Int64(1)}]),
    }
    event: dict[str, Any] = {}
    for name, values in (transaction | required | optional).items():
        if name in required or draw(st.booleans()):
            event[name] = draw(values)
    return event if draw(st.integers(0, 4)) else dict(reversed(event.items()))


@quick
@given(events(), st.binary(max_size=3))
def test_places_are_what_decoding_finds(event: dict[str, Any], before: bytes) -> None:
    raw = in_order(event)
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
    raw = in_order(event)
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
    first, second = ChangeEvent(in_order(one)), ChangeEvent(in_order(other))
    assert (first.lane == second.lane) is (first.key == second.key)
    assert (first.lane is None) is (first.key is None)


IDS = [
    ObjectId(b"an-object-id"),
    7,
    Int64(7),
    "seven",
    7.5,
    None,
    Binary(b"u" * 16, 4),
    {"a": 1},
    Decimal128("7"),
]


@pytest.mark.parametrize("identity", IDS, ids=repr)
def test_all_events_of_a_document_have_its_lane(identity: Any) -> None:
    """Found by its place or by walking, alone or in a transaction, before sharding and after."""
    event = {"_id": {"_data": "82"}, "operationType": "insert", "clusterTime": Timestamp(1, 1)}
    inside = {**IN_TRANSACTION, **event}
    other = {**event, "lsid": {**LSID, "txnNumber": Int64(1)}, "txnNumber": Int64(3)}
    lanes = {
        ChangeEvent(in_order({**around, "ns": ORDERS, "documentKey": key})).lane
        for around in (event, inside, other)
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


TIME = {"clusterTime": Timestamp(1, 1)}
UUID, WALL_TIME = {"collectionUUID": Binary(b"c" * 16, 4)}, {"wallTime": datetime(2026, 1, 1)}
SURROUNDINGS: dict[str, Any] = {
    "plain": ({}, {**TIME, **WALL_TIME}),
    "before 6.0": ({}, TIME),
    "expanded": ({}, {**TIME, **UUID, **WALL_TIME}),
    "in a transaction": (IN_TRANSACTION, {**TIME, **WALL_TIME}),
    "in a transaction, before 6.0": (IN_TRANSACTION, TIME),
    "in a transaction, expanded": (IN_TRANSACTION, {**TIME, **UUID, **WALL_TIME}),
}
IMAGES: dict[str, Any] = {
    "insert": {"fullDocument": {"a": 1}},
    "update": {"fullDocument": None},
    "delete": {},
}


def as_mongod_makes_it(surroundings: str, operation: str, identity: Any) -> dict[str, Any]:
    first, more = SURROUNDINGS[surroundings]
    head = {**first, "_id": {"_data": "82"}, "operationType": operation, **more}
    place = {"ns": ORDERS, "documentKey": {"_id": identity}}
    return {**head, **IMAGES[operation], **place, "updateDescription": {"updatedFields": {}}}


@pytest.mark.parametrize("operation", IMAGES)
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_an_event_as_mongod_makes_it_is_not_walked(
    surroundings: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walked(*_: object) -> None:
        raise AssertionError("walked")

    monkeypatch.setattr(layout, "elements", walked)
    for identity in IDS:
        found = as_mongod_makes_it(surroundings, operation, identity)
        event = ChangeEvent(in_order(found))
        assert event.lane is not None
        assert event.token.document == {"_data": "82"}
        assert event.operation_type == operation
        assert event.cluster_time == Timestamp(1, 1)
        assert event.ns == Namespace("shop", "orders")
        assert event.document_key == {"_id": identity}
        assert (layout.image_at(event.raw, 0) is None) is (operation != "insert")
        unit = layout.transaction_at(event.raw, 0, len(event.raw))
        assert (unit is None) is ("txnNumber" not in found)


def answers(buffer: bytes, start: int, end: int) -> list[Any]:
    """All that is asked of an event but its image, which is found by its place or not at all."""
    fields = [layout.field_at(buffer, start, name) for name in (b"_id", b"ns", b"documentKey")]
    return [
        *fields,
        layout.operation_at(buffer, start),
        layout.cluster_time_at(buffer, start),
        layout.transaction_at(buffer, start, end),
        layout.document_named(buffer, start),
    ]


def by_walking(buffer: bytes, start: int, end: int) -> list[Any] | None:
    """The same answers without any place; ``None`` of what is no event."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "_ID", b"nowhere")
        patch.setattr(layout, "_SESSION", lambda *_: None)
        try:
            return answers(buffer, start, end)
        except (ValueError, LookupError, struct.error):
            return None


def check(raw: bytes) -> bool:
    """Whether it is an event. If so, places and walking say the same, whatever is behind it."""
    buffer = b"\x03" + raw + in_order(as_mongod_makes_it("in a transaction", "insert", 7))
    expected = by_walking(buffer, 1, 1 + len(raw))
    if expected is None:
        return False
    assert answers(buffer, 1, 1 + len(raw)) == expected
    image = layout.image_at(buffer, 1)
    assert image is None or image == document_at(buffer, elements(buffer, 1)[b"fullDocument"][1])
    return True


@pytest.mark.parametrize("operation", IMAGES)
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_a_wrong_byte_changes_no_answer_of_an_event(surroundings: str, operation: str) -> None:
    """Each is wrong once, in three ways."""
    for identity in (ObjectId(b"o" * 12), "x"):
        raw = in_order(as_mongod_makes_it(surroundings, operation, identity))
        assert check(raw)
        found = [
            check(bytes((*raw[:place], raw[place] ^ flip, *raw[place + 1 :])))
            for place in range(len(raw))
            for flip in (0x01, 0x80, 0xFF)
        ]
        assert any(found)


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_an_event_that_ends_early_has_the_answers_of_what_is_left(surroundings: str) -> None:
    """Behind any of its fields it is an event still; elsewhere it is none."""
    event = as_mongod_makes_it(surroundings, "insert", 7)
    raw = in_order(event)
    whole = [
        check((size + 1).to_bytes(4, "little") + raw[4:size] + b"\0") for size in range(4, len(raw))
    ]
    assert whole.count(True) == len(event) + 1
    for size in range(len(raw)):
        with suppress(ValueError, LookupError, struct.error):
            answers(raw[:size], 0, size)


@quick
@given(events(), st.integers(0, 400), st.integers(0, 255))
def test_places_are_what_walking_finds(event: dict[str, Any], place: int, byte: int) -> None:
    raw = in_order(event)
    assert check(raw)
    check(bytes((*raw[:place], byte, *raw[place + 1 :])))


@quick
@given(st.lists(events(), max_size=9))
def test_a_survey_counts_types_and_finds_the_first_event_without_a_token(
    found: list[dict[str, Any]],
) -> None:
    types = Counter(event["operationType"] for event in found)
    encoded = [in_order(event) for event in found]
    assert survey(*join(encoded)).operations == types
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
