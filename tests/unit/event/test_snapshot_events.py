"""Documents become events without being decoded, and events are read as those of a stream."""

from typing import Any

import bson
import pytest
from bson import Binary, ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event import ChangeEvent, Namespace, layout
from tailrace.event.bson import encoded
from tailrace.event.codec import CODEC
from tailrace.event.reply import read_reply
from tailrace.event.snapshot_events import LastRows, ReadEvents, barrier, document_id, of_snapshot
from tailrace.model.snapshot import DocumentId
from tests.unit.event.documents import documents, quick, scalars

TIME = Timestamp(1_700_000_000, 7)
UUID = bytes(range(16))
SNAPSHOT = "6b03e89705ef098f745b0502"
IDS = st.just(ObjectId(b"o" * 12)) | scalars | documents
DOCUMENTS = st.lists(st.tuples(IDS, documents), max_size=12).map(
    lambda pairs: [{"_id": identity, **other} for identity, other in pairs]
)


def reply(*documents: bytes, **cursor: Any) -> bytes:
    """A reply to find with these documents."""
    batch = [RawBSONDocument(raw) for raw in documents]
    fields = {"firstBatch": batch, "id": 0, "ns": "shop.orders", "atClusterTime": TIME} | cursor
    return bson.encode({"cursor": fields, "ok": 1.0})


@quick
@given(DOCUMENTS, st.sampled_from(["orders", "a.b", "ü €", "o" * 200, "o" * 300]))
def test_an_event_has_its_document_as_it_came(found: list[dict[str, Any]], name: str) -> None:
    raw = [bson.encode(document) for document in found]
    made = ReadEvents(SNAPSHOT, UUID.hex(), "shop", name).batch([read_reply(reply(*raw))], TIME)
    events = list(made.events())
    assert made.operations() == {"read": len(found)}
    for event, document in zip(events, raw, strict=True):
        decoded = bson.decode(document, CODEC)
        assert event.raw == bson.encode(bson.decode(event.raw, CODEC), codec_options=CODEC)
        parts = layout.parts(event.raw, 0)
        begin, end = parts[layout.FULL_DOCUMENT : layout.FULL_DOCUMENT + 2]
        assert event.raw[begin:end] == document
        assert repr(event.full_document) == repr(decoded)
        assert repr(event.document_key) == repr({"_id": decoded["_id"]})
        own = {"snapshot": SNAPSHOT, "collection": Binary(UUID, 4), "_id": decoded["_id"]}
        assert repr(event.id) == repr(own)
        assert event.token.cluster_time is None
        assert event.operation_type == "read"
        assert event.cluster_time == TIME
        assert event.ns == Namespace("shop", name)
        # Walked, which takes longer, only where a namespace has more than 255 bytes.
        assert (parts[0] == layout.ABSENT) == (len(name) == 300)


def test_rows_of_a_further_range_have_its_number() -> None:
    found = read_reply(reply(bson.encode({"_id": 7})))
    (event,) = ReadEvents(SNAPSHOT, f"{UUID.hex()}/3", "shop", "a").batch([found], TIME).events()
    own = {"snapshot": SNAPSHOT, "collection": Binary(UUID, 4), "range": 3, "_id": 7}
    assert event.raw == bson.encode(bson.decode(event.raw, CODEC), codec_options=CODEC)
    assert repr(event.id) == repr(own)


@quick
@given(DOCUMENTS)
def test_a_row_has_the_key_of_the_documents_events(found: list[dict[str, Any]]) -> None:
    raw = [bson.encode(document) for document in found]
    made = ReadEvents(SNAPSHOT, UUID.hex(), "shop", "orders").batch([read_reply(reply(*raw))], TIME)
    for row, document in zip(made.events(), found, strict=True):
        insert = {
            "_id": {"_data": "82"},
            "operationType": "insert",
            "clusterTime": TIME,
            "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"_id": document["_id"]},
        }
        assert row.key == ChangeEvent.from_document(insert).key


def test_the_documents_of_several_replies_are_one_batch() -> None:
    raw = [bson.encode({"_id": number}) for number in range(1200)]
    replies = [read_reply(reply(*raw[:1100])), read_reply(reply(*raw[1100:]))]
    made = ReadEvents(SNAPSHOT, UUID.hex(), "shop", "orders").batch(replies, TIME)
    assert [event.document_key for event in made.events()] == [{"_id": n} for n in range(1200)]


def test_a_document_without_an_id_is_refused() -> None:
    found = read_reply(reply(bson.encode({"a": 1})))
    with pytest.raises(ValueError, match="no _id"):
        ReadEvents(SNAPSHOT, UUID.hex(), "shop", "orders").batch([found], TIME)


def test_an_id_behind_other_fields_is_found() -> None:
    found = read_reply(reply(bson.encode({"a": {"_id": 5}, "_id": 7})))
    (event,) = ReadEvents(SNAPSHOT, UUID.hex(), "shop", "orders").batch([found], TIME).events()
    assert event.document_key == {"_id": 7}


def test_a_barrier_has_no_document_key() -> None:
    fields = {"ns": {"db": "shop"}, "snapshot": {"n": 1}}
    (event,) = barrier("snapshotBegin", SNAPSHOT, TIME, fields).events()
    assert event.key is None
    assert event.operation_type == "snapshotBegin"
    assert event.id == {"snapshot": SNAPSHOT, "event": "snapshotBegin"}
    assert event.ns == Namespace("shop")
    assert event.cluster_time == TIME
    assert event.document["snapshot"] == {"n": 1}


@quick
@given(DOCUMENTS)
def test_the_last_rows_of_what_a_destination_takes(found: list[dict[str, Any]]) -> None:
    last = LastRows()
    raw = [bson.encode(document) for document in found]
    names = [UUID.hex(), f"{UUID.hex()}/1", f"{UUID.hex()}/300", "00" * 16]
    for name in names:
        reader = ReadEvents(SNAPSHOT, name, "shop", "orders")
        events = reader.batch([read_reply(reply(*raw))], TIME).events()
        for event in events:
            assert of_snapshot(event.raw)
            last.note(event.raw)
    (begin,) = barrier("snapshotBegin", SNAPSHOT, TIME, {}).events()
    last.note(begin.raw)
    stored = last.stored()
    assert stored is not None
    assert stored.id == SNAPSHOT
    assert not stored.ended
    if not found:
        assert not stored.last
        return
    end = DocumentId(encoded(document_id(raw[-1], 0)))
    assert stored.last == dict.fromkeys(names, end)
