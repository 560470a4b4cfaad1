"""Parts found by their place are what decoding finds, in events of any order and content."""

from __future__ import annotations

import struct
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event import ChangeEvent, Namespace, layout
from tailrace.event.change_event import CODEC
from tests.scripted.wire import in_order
from tests.unit.event.documents import documents, names, quick, timestamps
from tests.unit.event.events import IMAGES, LSID, SURROUNDINGS, as_mongod_makes_it, events


@quick
@given(events(), st.binary(max_size=3))
def test_attributes_are_what_decoding_finds(event: dict[str, Any], before: bytes) -> None:
    raw = in_order(event)
    found = ChangeEvent(before + raw + b"behind", len(before))
    expected = bson.decode(raw, CODEC)
    ns = expected.get("ns")
    assert found.raw == raw
    assert found.id == expected["_id"]
    assert found.operation_type == expected["operationType"]
    assert found.cluster_time == expected.get("clusterTime")
    assert found.ns == (Namespace(ns["db"], ns["coll"]) if ns else None)
    assert found.wall_time == expected.get("wallTime")
    for attribute, name in {
        "document_key": "documentKey",
        "full_document": "fullDocument",
        "full_document_before_change": "fullDocumentBeforeChange",
        "update_description": "updateDescription",
        "lsid": "lsid",
        "txn_number": "txnNumber",
        "collection_uuid": "collectionUUID",
    }.items():
        assert repr(getattr(found, attribute)) == repr(expected.get(name)), name
        assert getattr(found, attribute) is getattr(found, attribute), name


@quick
@given(events(), st.binary(max_size=3))
def test_the_transaction_of_an_event(event: dict[str, Any], before: bytes) -> None:
    raw = in_order(event)
    buffer = before + raw + bson.encode({"txnNumber": bson.Int64(1), "lsid": LSID})
    found = layout.transaction_at(buffer, len(before), len(before) + len(raw))
    if "lsid" not in event or "txnNumber" not in event:
        assert found is None
        return
    time = bson.encode({"": event["clusterTime"]})[6:14] if "clusterTime" in event else b""
    number = event["txnNumber"].to_bytes(8, "little")
    assert found == (bson.encode(event["lsid"]) + number, time)


@pytest.mark.parametrize("operation", IMAGES)
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize("token", [{"_data": "82"}, {"_data": "82", "_typeBits": b"\x82\x80"}])
def test_an_event_as_mongod_makes_it_is_not_walked(
    token: Any, surroundings: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walked(*_: object) -> None:
        raise AssertionError("walked")

    monkeypatch.setattr(layout, "walk", walked)
    for key in ({"_id": ObjectId()}, {"_id": 7}, {"region": "eu", "_id": "x"}):
        raw = in_order(as_mongod_makes_it(surroundings, operation, key) | {"_id": token})
        event = ChangeEvent(raw)
        assert layout.named(raw, 0) is not None
        assert event.token.document == token
        assert (event.operation_type, event.cluster_time) == (operation, Timestamp(1, 1))
        assert (event.ns, event.document_key) == (Namespace("shop", "orders"), key)
        assert event.full_document == IMAGES[operation].get("fullDocument")
        assert event.update_description == {"updatedFields": {}}


def answers(buffer: bytes, start: int) -> Any:
    """All that is asked of an event; its namespace and key are bytes."""
    return layout.offsets(buffer, start), layout.named(buffer, start)


def check(raw: bytes) -> bool:
    """Whether it is BSON. If so, places and walking say the same, whatever is behind it."""
    try:
        bson.decode(raw, CODEC)
    except (bson.errors.BSONError, ValueError, OverflowError):
        return False
    behind = in_order(as_mongod_makes_it("in a transaction", "insert", {"_id": 7}))
    buffer = b"\x03" + raw + behind
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "_HEAD", lambda *_: None)
        expected = answers(buffer, 1)
    assert answers(buffer, 1) == expected
    return True


@pytest.mark.parametrize("operation", IMAGES)
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_a_wrong_byte_changes_no_answer_of_an_event(surroundings: str, operation: str) -> None:
    """Each is wrong once, in three ways."""
    for identity in (ObjectId(b"o" * 12), "x"):
        raw = in_order(as_mongod_makes_it(surroundings, operation, {"_id": identity}))
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
    event = as_mongod_makes_it(surroundings, "insert", {"_id": 7})
    raw = in_order(event)
    whole = [
        check((size + 1).to_bytes(4, "little") + raw[4:size] + b"\0") for size in range(4, len(raw))
    ]
    assert whole.count(True) == len(event) + 1
    for size in range(len(raw)):
        with suppress(ValueError, LookupError, struct.error):
            answers(raw[:size], 0)


@quick
@given(events(), st.integers(0, 400), st.integers(0, 255))
def test_places_are_what_walking_finds(event: dict[str, Any], place: int, byte: int) -> None:
    raw = in_order(event)
    assert check(raw)
    check(bytes((*raw[:place], byte, *raw[place + 1 :])))


def again(parts: layout.Parts) -> bytes:
    """The event of these parts, made in mongod's order."""
    seconds, increment, token, wall_time, operation, image, namespace, key, update = parts
    body = b"\x03_id\0" + token
    body += b"\x02operationType\0" + struct.pack("<i", len(operation) + 1) + operation + b"\0"
    body += b"\x11clusterTime\0" + struct.pack("<II", increment, seconds)
    body += b"\x09wallTime\0" + struct.pack("<q", wall_time)
    body += b"" if image is None else b"\x03fullDocument\0" + image
    body += b"\x03ns\0" + namespace + b"\x03documentKey\0" + key
    body += b"" if update is None else b"\x03updateDescription\0" + update
    return struct.pack("<i", len(body) + 5) + body + b"\0"


PLAIN = st.builds(
    lambda token, operation, time: {
        "_id": {"_data": token},
        "operationType": operation,
        "clusterTime": time,
        "wallTime": datetime(2026, 1, 1, tzinfo=UTC),
    },
    st.text("0123456789ABCDEF", max_size=40),
    st.sampled_from(["insert", "update", "replace", "delete"]),
    timestamps,
)
IMAGE = st.one_of(st.just({}), st.builds(lambda image: {"fullDocument": image}, documents))
PLACE = st.builds(lambda db, coll: {"ns": {"db": db, "coll": coll}}, names, names)
UPDATE = st.one_of(st.just({}), st.builds(lambda update: {"updateDescription": update}, documents))
OTHER = st.sampled_from([{}, {}, {}, {"splitEvent": {"fragment": 1, "of": 2}}])


@quick
@given(PLAIN, IMAGE, PLACE, documents, UPDATE, OTHER, st.integers(0), st.binary(max_size=2))
def test_parts_make_the_event_again_whatever_it_is(
    plain: dict[str, Any],
    image: dict[str, Any],
    place: dict[str, Any],
    key: dict[str, Any],
    update: dict[str, Any],
    other: dict[str, Any],
    where: int,
    damage: bytes,
) -> None:
    """Of damaged bytes too: what is not an event in every byte has no parts."""
    raw = in_order({**plain, **image, **place, "documentKey": key, **update, **other})
    where %= len(raw)
    damaged = raw[:where] + damage + raw[where + len(damage) :]
    for each in (raw, damaged, raw[:where]):
        found = layout.parts(each)
        assert found is None or again(found) == each
    assert (layout.parts(raw) is None) == bool(other)


@pytest.mark.parametrize("operation", ["insert", "update", "replace", "delete"])
@pytest.mark.parametrize("more", [{}, {"updateDescription": {"updatedFields": {}}}], ids=str)
@pytest.mark.parametrize("image", [{}, {"fullDocument": {"_id": 1}}], ids=str)
def test_an_event_that_says_no_more_than_most_has_parts(
    operation: str, more: dict[str, Any], image: dict[str, Any]
) -> None:
    place = {"ns": {"db": "shop", "coll": "orders"}, "documentKey": {"_id": 1}}
    head = {**as_mongod_makes_it("plain", "delete", {}), "operationType": operation}
    event = {name: head[name] for name in ("_id", "operationType", "clusterTime", "wallTime")}
    found = layout.parts(bson.encode({**event, **image, **place, **more}))
    assert found is not None
    assert (found[4], found[7]) == (operation.encode(), bson.encode(place["documentKey"]))
