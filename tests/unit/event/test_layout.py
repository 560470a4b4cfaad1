"""Parts found by their place are what decoding finds, in events of any order and content."""

from contextlib import suppress
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event import ChangeEvent, Namespace, layout
from tailrace.event.codec import CODEC
from tests.scripted.wire import in_order
from tests.unit.event.documents import quick
from tests.unit.event.events import (
    IMAGES,
    LSID,
    SURROUNDINGS,
    TYPES,
    as_mongod_makes_it,
    events,
)


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
    for attribute in TYPES.keys() - {"ns", "to", "cluster_time"}:
        value = getattr(found, attribute)
        assert repr(value) == repr(expected.get(TYPES[attribute][0])), attribute
        assert getattr(found, attribute) is value, attribute


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
        assert event.key is not None
        assert event.token.document == token
        assert (event.operation_type, event.cluster_time) == (operation, Timestamp(1, 1))
        assert (event.ns, event.document_key) == (Namespace("shop", "orders"), key)
        assert event.full_document == IMAGES[operation].get("fullDocument")
        assert event.update_description == {"updatedFields": {}}


def said(buffer: bytes, start: int) -> list[Any]:
    """What the parts of an event say, wherever they lie."""
    found = layout.parts(buffer, start)
    _, token, token_end, *plain, image, image_end, namespace = found[:10]
    key, key_end, update, update_end, before, before_end, _ = found[10:]
    spans = (token, token_end), (image, image_end), (key, key_end)
    spans = *spans, (update, update_end), (before, before_end)
    return [*plain, namespace, *(buffer[begin:end] if begin > 0 else None for begin, end in spans)]


def check(raw: bytes) -> bool:
    """Whether it is BSON. If so, it says the same in an order that must be walked."""
    try:
        bson.decode(raw, CODEC)
    except (bson.errors.BSONError, ValueError, OverflowError):
        return False
    behind = in_order(as_mongod_makes_it("in a transaction", "insert", {"_id": 7}))
    walked = (len(raw) + 3).to_bytes(4, "little") + b"\x0ax\0" + raw[4:]
    assert said(b"\x03" + raw + behind, 1) == said(b"\x03" + walked + behind, 1)
    return True


@quick
@given(events(), st.integers(0, 400), st.integers(0, 255))
def test_places_are_what_walking_finds(event: dict[str, Any], place: int, byte: int) -> None:
    """Also of what is left of it, and of what one wrong byte makes of it."""
    raw = in_order(event)
    assert check(raw)
    check(bytes((*raw[:place], byte, *raw[place + 1 :])))
    with suppress(ValueError):
        said(raw[: place % len(raw)], 0)
