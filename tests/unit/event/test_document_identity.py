"""What becomes of a document whose shard key changes, for destinations that keep its last state."""

from collections.abc import Iterable, Sequence
from typing import Any

import bson
import pytest

from tailrace.event import ChangeEvent
from tailrace.event.document_identity import (
    key_after,
    key_after_text,
    shard_key_in,
    shard_key_of_text,
)
from tailrace.event.document_key import shard_key
from tailrace.event.last_change import last_changes, overtaken
from tests.scripted.sharded import IN_ONE_BATCH, SEQUENCES, ShardedCollection

Batches = list[list[ChangeEvent]]


def cut(sent: Iterable[Sequence[dict[str, Any]]], how: str) -> Batches:
    events = [[ChangeEvent.from_document(event) for event in group] for group in sent]
    if how == "together":
        return [[event for group in events for event in group]]
    if how == "by transaction":
        return events
    return [[event] for group in events for event in group]


def kept(batches: Batches) -> dict[Any, tuple[str, dict[str, Any]]]:
    """What a destination has that stores, by ``_id``, the last document and its key."""
    rows: dict[Any, tuple[str, Any, dict[str, Any]]] = {}
    for batch in batches:
        for change in last_changes(batch):
            event = batch[change.index]
            identity = (event.document_key or {})["_id"]
            if event.operation_type != "delete":
                document = event.full_document or {}
                rows[identity] = key_after_text(event), event.cluster_time, document
            elif identity in rows:
                key, time, _ = rows[identity]
                same_time = time == event.cluster_time
                if change.concerns(shard_key_of_text(key), same_time=same_time):
                    del rows[identity]
    return {identity: (key, document) for identity, (key, _, document) in rows.items()}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("path", ["region", "at.region"])
@pytest.mark.parametrize(
    ("name", "how"),
    [
        (name, how)
        for name in SEQUENCES
        for how in ("together", "by transaction", "by event")
        # The events of some transactions are judged together.
        if how != "by event" or not any(each in name for each in IN_ONE_BATCH)
    ],
)
def test_a_document_stays_while_it_lives(name: str, how: str, path: str, version: int) -> None:
    collection = ShardedCollection(version, path)
    SEQUENCES[name](collection, 1)
    found = kept(cut(collection.sent, how))
    assert {identity: document for identity, (_, document) in found.items()} == collection.living()
    for key, document in found.values():
        expected = collection.document_key(document)
        if path in expected and "missing" not in name:
            assert shard_key_of_text(key) == shard_key_of_text(_text(expected))


def _text(key: dict[str, Any]) -> str:
    document = {"operationType": "insert", "documentKey": key, "fullDocument": {}}
    return key_after_text(ChangeEvent.from_document(document))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"updateDescription": {"updatedFields": {"sk": "b"}}}, {"sk": "b", "_id": 1}),
        ({"updateDescription": {"updatedFields": {"n": 2}}}, {"sk": "a", "_id": 1}),
        ({"updateDescription": {"removedFields": ["sk"]}}, {"_id": 1}),
        ({"updateDescription": {"updatedFields": {"sk": {"x": 1}}}}, {"sk": {"x": 1}, "_id": 1}),
        ({"fullDocument": {"_id": 1, "sk": "c"}}, {"sk": "c", "_id": 1}),
        ({"fullDocument": {"_id": 1}}, {"sk": "a", "_id": 1}),
        ({"operationType": "replace", "fullDocument": {"_id": 1}}, {"_id": 1}),
        ({"operationType": "replace", "fullDocument": {"_id": 1, "sk": 2}}, {"sk": 2, "_id": 1}),
        ({"updateDescription": {"updatedFields": 7, "removedFields": {}}}, {"sk": "a", "_id": 1}),
        ({"operationType": "delete"}, {"sk": "a", "_id": 1}),
        ({"operationType": "drop", "documentKey": None}, None),
    ],
)
def test_the_key_after_an_event(event: dict[str, Any], expected: Any) -> None:
    usual = {"operationType": "update", "documentKey": {"sk": "a", "_id": 1}}
    assert key_after(ChangeEvent.from_document(usual | event)) == expected


@pytest.mark.parametrize(
    ("updated", "removed", "exact", "expected"),
    [
        ({"at.region": "b"}, [], {}, {"at.region": "b", "_id": 1}),
        ({"at": {"region": "c", "n": 1}}, [], {}, {"at.region": "c", "_id": 1}),
        ({"at": 5}, [], {}, {"_id": 1}),
        ({}, ["at"], {}, {"_id": 1}),
        ({"at.region": "b"}, [], {"at.region": ["at.region"]}, {"at.region": "a", "_id": 1}),
    ],
)
def test_the_key_after_an_update_of_a_dotted_path(
    updated: Any, removed: Any, exact: Any, expected: Any
) -> None:
    described = {"updatedFields": updated, "removedFields": removed, "disambiguatedPaths": exact}
    event = {
        "operationType": "update",
        "documentKey": {"at.region": "a", "_id": 1},
        "updateDescription": described,
    }
    assert key_after(ChangeEvent.from_document(event)) == expected


def test_the_delete_of_a_document_that_shares_its_id_spares_the_other_one() -> None:
    collection = ShardedCollection()
    collection.insert(1, "us", of="first")
    first = dict(collection.documents)
    collection.insert(1, "eu", of="second")
    collection.sent.append([])
    collection.documents = first
    collection.delete(1)
    for how in ("together", "by transaction", "by event"):
        (document,) = (document for _, document in kept(cut(collection.sent, how)).values())
        assert document["of"] == "second"


def test_only_events_of_a_transaction_that_moves_a_document_are_overtaken() -> None:
    collection = ShardedCollection()
    collection.insert(1, "us")
    collection.insert(2, "eu")
    with collection.transaction():
        collection.update(1, n=1)
        collection.update(1, region="eu")
        collection.delete(2)
    (events,) = cut(collection.sent[2:], "together")
    shown = [(each.operation_type, (each.document_key or {})["_id"]) for each in events]
    assert shown == [("insert", 1), ("update", 1), ("delete", 2), ("delete", 1)]
    assert overtaken(events) == {1, 3}


def test_keys_that_the_server_holds_equal_are_one_key() -> None:
    """The shard key was updated as another type of number, which is the same key."""
    insert = {
        "operationType": "insert",
        "documentKey": {"sk": 7, "_id": 1},
        "fullDocument": {"_id": 1, "sk": 7},
    }
    delete = {"operationType": "delete", "documentKey": {"sk": bson.Int64(7), "_id": 1}}
    first, last = (ChangeEvent.from_document(each) for each in (insert, delete))
    assert kept([[first], [last]]) == {}


@pytest.mark.parametrize("other", ['{"$date":"soon"}', '{"$oid":1}', '{"$binary":[]}'])
def test_other_fields_of_a_document_do_not_hide_its_shard_key(other: str) -> None:
    """They may look like values of Extended JSON, and be an application's documents."""
    numbers = ["5", '{"$numberInt":"5"}']
    found = [shard_key_in(f'{{"at":{other},"s":{{"n":{n}}}}}'.encode(), [b"s.n"]) for n in numbers]
    assert found == 2 * [shard_key(bson.encode({"_id": 1, "s.n": 5}))]
