"""One change event: its fields as MongoDB sent them, and what orders it."""

import uuid
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Binary, Int64
from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent, Image, Namespace
from tailrace.model import ResumeToken
from tests.unit.event.documents import batch_of
from tests.unit.event.events import TYPES

TOKEN = {"_data": "8265A0B0C000000001"}
WHOLE = {
    "_id": TOKEN,
    "operationType": "update",
    "clusterTime": Timestamp(1_700_000_000, 3),
    "wallTime": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    "fullDocument": {"_id": 1, "a": 2},
    "fullDocumentBeforeChange": {"_id": 1, "a": 1},
    "ns": {"db": "shop", "coll": "orders"},
    "nsType": "collection",
    "collectionUUID": Binary.from_uuid(uuid.UUID(int=7)),
    "to": {"db": "shop", "coll": "archive"},
    "documentKey": {"region": "eu", "_id": 1},
    "updateDescription": {"updatedFields": {"a": 2}, "removedFields": [], "truncatedArrays": []},
    "operationDescription": {"indexes": []},
    "lsid": {"id": Binary(b"0" * 16, 4), "uid": b"1"},
    "txnNumber": Int64(4),
    "somethingNew": [1],
}


NEVER_NONE = {
    *("id", "token", "raw", "document", "operation_type", "fresh", "from_raw", "from_document"),
    *("full_document_image", "full_document_before_change_image", "is_ddl", "size"),
    *("field_bytes", "parts", "between", "cached", "cache"),
}


def test_every_attribute_reads_its_field() -> None:
    event = ChangeEvent.from_document(WHOLE)
    assert (event.id, event.token) == (TOKEN, ResumeToken.of(TOKEN))
    assert event.operation_type == "update"
    assert (event.ns, event.to) == (Namespace("shop", "orders"), Namespace("shop", "archive"))
    for attribute in TYPES.keys() - {"ns", "to"}:
        assert getattr(event, attribute) == WHOLE[TYPES[attribute][0]]
    assert event.document == WHOLE
    assert event.document is event.document
    assert event.raw == bson.encode(WHOLE)


def test_what_the_server_did_not_send_is_none() -> None:
    event = ChangeEvent.from_document({"wings": 2})
    assert (event.operation_type, event.id, event.token.document) == ("", {}, {})
    for name in ChangeEvent.__dict__.keys() - NEVER_NONE:
        if not name.startswith("_"):
            assert getattr(event, name) is None, name
    assert event.document["wings"] == 2


@pytest.mark.parametrize(
    ("fields", "image"),
    [
        ({}, Image.ABSENT),
        ({"value": None}, Image.NULL),
        ({"value": {}}, Image.PRESENT),
        ({"value": {"_id": 1}}, Image.PRESENT),
    ],
    ids=["absent", "null", "empty", "present"],
)
def test_an_image_is_absent_or_null_or_present(fields: dict[str, Any], image: Image) -> None:
    def event(name: str) -> ChangeEvent:
        return ChangeEvent.from_document(dict.fromkeys([name] * len(fields), fields.get("value")))

    assert event("fullDocument").full_document_image is image
    assert event("fullDocumentBeforeChange").full_document_before_change_image is image
    assert event("fullDocument").full_document_before_change_image is Image.ABSENT


def test_a_namespace_is_shown_as_people_write_it() -> None:
    assert str(Namespace("shop", "orders")) == "shop.orders"
    assert str(Namespace("shop")) == "shop"
    dropped = ChangeEvent.from_document({"ns": {"db": "shop"}, "operationType": "dropDatabase"})
    assert dropped.ns == Namespace("shop")


def test_dates_beyond_python_and_broken_text_do_not_fail() -> None:
    raw = bson.encode({"when": DatetimeMS(2**60), "text": "abc"}).replace(b"abc", b"a\xffc")
    document = ChangeEvent.from_raw(raw).document
    assert document["when"] == DatetimeMS(2**60)
    assert document["text"] == "a\N{REPLACEMENT CHARACTER}c"


def test_an_event_shows_its_token_as_a_digest_only() -> None:
    event = batch_of([WHOLE]).events()[0]
    assert repr(event) == f"<ChangeEvent update shop.orders {event.token.digest}>"
    assert TOKEN["_data"] not in repr(event)
