"""Parts of an event without decoding the rest: its document key as text, and fields as BSON."""

from typing import Any

import bson
import pytest
from bson import Binary, ObjectId, json_util
from hypothesis import given

from tailrace.event import ChangeEvent
from tests.scripted.wire import in_order
from tests.unit.event.documents import EVERY_ID, quick
from tests.unit.event.events import (
    IMAGES,
    ORDERS,
    SURROUNDINGS,
    TYPES,
    as_mongod_makes_it,
    events,
)

DOCUMENTS = [field for field, kind in TYPES.values() if kind is dict] + ["_id", "ns", "other"]


@pytest.mark.parametrize("value", EVERY_ID.values(), ids=EVERY_ID)
@pytest.mark.parametrize("shard", [{}, {"region": "eu"}], ids=["alone", "sharded"])
def test_the_key_text_is_the_id_as_canonical_extended_json_whatever_the_shard_key(
    shard: dict[str, Any], value: Any
) -> None:
    key = {**shard, "_id": value}
    text = ChangeEvent.from_document({"documentKey": key}).key_text
    expected = json_util.dumps({"_id": value}, json_options=json_util.CANONICAL_JSON_OPTIONS)
    assert text == expected.replace('": ', '":').replace(", ", ",")


def test_an_object_id_is_a_key_text_in_events_of_every_layout() -> None:
    key = {"_id": ObjectId("65a0b0c00000000000000001")}
    texts = {
        ChangeEvent(in_order(as_mongod_makes_it(around, operation, key))).key_text
        for around in SURROUNDINGS
        for operation in IMAGES
    }
    assert texts == {'{"_id":{"$oid":"65a0b0c00000000000000001"}}'}


def test_a_key_of_as_many_bytes_as_one_with_an_object_id_is_written_as_what_it_is() -> None:
    key = {"_id": "sevench"}
    assert len(bson.encode(key)) == len(bson.encode({"_id": ObjectId()}))
    assert ChangeEvent.from_document({"documentKey": key}).key_text == '{"_id":"sevench"}'


@pytest.mark.parametrize("key", [{}, {"documentKey": None}, {"documentKey": 7}], ids=repr)
def test_an_event_without_a_document_key_has_no_key_text(key: dict[str, Any]) -> None:
    assert (
        ChangeEvent.from_document({"operationType": "drop", "ns": ORDERS, **key}).key_text is None
    )


@quick
@given(events())
def test_a_field_that_is_a_document_is_cut_out_as_its_bytes(document: dict[str, Any]) -> None:
    event = ChangeEvent(in_order(document))
    for name in (*DOCUMENTS, "operationType", "clusterTime"):
        value = document.get(name)
        expected = in_order(value) if isinstance(value, dict) else None
        assert event.field_bytes(name) == expected, name


@pytest.mark.parametrize("value", [None, [], [{"a": 1}], 7, "x", Binary(b"x", 5)], ids=repr)
@pytest.mark.parametrize("name", ["fullDocument", "other"])
def test_a_field_of_another_type_is_none(name: str, value: Any) -> None:
    assert ChangeEvent.from_document({name: value}).field_bytes(name) is None


def test_the_last_of_repeated_fields_counts() -> None:
    one, two = ({"other": {"a": number}, "fullDocument": {"b": number}} for number in (1, 2))
    raw = bson.encode(one)[4:-1] + bson.encode(two)[4:-1]
    event = ChangeEvent.from_raw((len(raw) + 5).to_bytes(4, "little") + raw + b"\0")
    assert event.field_bytes("other") == bson.encode({"a": 2})
    assert event.field_bytes("fullDocument") == bson.encode({"b": 2})
