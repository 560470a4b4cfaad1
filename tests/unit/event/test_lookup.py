"""Documents that were looked up, in the events of a reply as they came."""

from collections.abc import Mapping, Sequence
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId, Regex
from bson.errors import InvalidBSON
from hypothesis import assume, given
from hypothesis import strategies as st

from tailrace.event import RawBatch
from tailrace.event.batch import join
from tailrace.event.codec import CODEC
from tailrace.event.lookup import Collection, fill, window
from tailrace.event.wanted_documents import MOST_KEYS
from tests.unit.event.documents import EVERY_ID, batch_of, quick
from tests.unit.event.events import SURROUNDINGS, as_mongod_makes_it, events
from tests.unit.event.finds import Documents, answer

EVERYTHING = 1 << 30
UUID = "FDF25D76F81D49ABA99F86A562152220"
TOKEN = f"826B040DCE000000152B022C0100296E5A1004{UUID}46645F69640064{'6' * 24}0004"
"""As mongod 6.0 makes it."""


def update(key: Any, surroundings: str = "plain", **more: Any) -> dict[str, Any]:
    """As mongod sends it to a stream that has not asked for documents."""
    key = key if isinstance(key, dict) and "_id" in key else {"_id": key}
    event = as_mongod_makes_it(surroundings, "update", key)
    del event["fullDocument"]
    return event | {"_id": {"_data": TOKEN}} | more


def looked_up(
    batch: RawBatch, documents: Documents, most_keys: int = MOST_KEYS, most_bytes: int = EVERYTHING
) -> list[list[bytes]]:
    """The parts of a reply with the documents that are there."""
    parts, first = [], 0
    while first < len(batch):
        found = window(batch.buffer, batch.bounds, first, most_keys, EVERYTHING)
        for wanted in found.wanted.values():
            wanted.found(answer(wanted.filter(), documents))
        while found.first < found.end:
            part = RawBatch(*fill(batch.buffer, batch.bounds, found, most_bytes), None)
            parts.append(list(part.raw()))
        first = found.end
    return parts


def is_event(raw: bytes) -> bool:
    try:
        return "_id" in bson.decode(raw)
    except (InvalidBSON, UnicodeDecodeError):
        return False


def decoded(raws: Sequence[bytes]) -> list[list[tuple[str, Any]]]:
    """In the order of fields; as BSON again, since NaN is not equal to itself."""
    return [
        [(name, bson.encode({"": value})) for name, value in bson.decode(raw, CODEC).items()]
        for raw in raws
    ]


def expected(event: dict[str, Any], documents: Mapping[bytes, Any]) -> dict[str, Any]:
    """The event as ``updateLookup`` gives it: with a document before the namespace."""
    ns, key = event.get("ns"), event.get("documentKey")
    if event["operationType"] != "update" or ns is None or key is None:
        return event
    document = documents.get(bson.encode(key))
    filled: dict[str, Any] = {}
    for name, value in event.items():
        filled |= {"fullDocument": document, name: value} if name == "ns" else {name: value}
    return filled


@quick
@given(st.lists(events(), min_size=1, max_size=5), st.data())
def test_events_are_as_the_server_makes_them_whatever_their_order(
    found: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Each ``_id`` has one key."""
    documents = {}
    keys = [each.get("documentKey") for each in found]
    with_ids = {
        bson.encode(key): bson.encode({"": key["_id"]}) for key in keys if key and "_id" in key
    }
    assume(len(set(with_ids.values())) == len(with_ids))
    for event in found:
        if event["operationType"] == "update":
            event.pop("fullDocument", None)
        key = event.get("documentKey")
        if key is not None and "_id" in key and data.draw(st.booleans()):
            documents[bson.encode(key)] = {"_id": key["_id"], **key, "n": len(documents)}
    ours = looked_up(batch_of(found), documents.values())
    wanted = batch_of([expected(event, documents) for event in found])
    assert decoded([raw for part in ours for raw in part]) == decoded(list(wanted.raw()))


IDS = {"as long as an object id": "x" * 7} | EVERY_ID


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize("kind", sorted(set(IDS) - {"regex", "array", "nan", "decimal nan"}))
def test_a_document_is_found_by_an_id_of_any_type(kind: str, surroundings: str) -> None:
    document = {"_id": IDS[kind], "n": 1}
    first = {"fullDocumentBeforeChange": {"n": 0}}
    events = [update({"_id": IDS[kind]}, surroundings, **more) for more in (first, {}, {})]
    ((*filled,),) = looked_up(batch_of(events), [document, {"_id": "another"}])
    assert [bson.decode(raw)["fullDocument"]["n"] for raw in filled] == [1, 1, 1]
    fields = list(bson.decode(filled[0]))
    assert fields.index("ns") == fields.index("fullDocument") + 1


def test_each_of_the_ids_that_begin_alike_has_its_own_document() -> None:
    """Documents are told apart by whole ids, not by as many bytes as an ObjectId has."""
    keys = [f"customer-number-{number}" for number in range(3)]
    documents = [{"_id": key, "of": key} for key in keys]
    (part,) = looked_up(batch_of([update(key) for key in keys]), documents)
    assert [bson.decode(raw)["fullDocument"] for raw in part] == documents


def test_equal_keys_are_asked_for_once() -> None:
    batch = batch_of([update(each) for each in (7, Int64(7), 7.0, ObjectId("6" * 24), 8)])
    batch = batch_of([*batch.raw(), *batch.raw()])
    found = window(batch.buffer, batch.bounds, 0, MOST_KEYS, EVERYTHING)
    (wanted,) = found.wanted.values()
    assert bson.decode(wanted.filter()) == {"_id": {"$in": [7, ObjectId("6" * 24), 8]}}


def test_a_document_is_one_of_its_own_collection() -> None:
    """Of other types of keys and other operations between them."""
    users = {"ns": {"db": "shop", "coll": "users"}}
    key, other = ObjectId("1" * 24), ObjectId("2" * 24)
    events = [
        *(update(key), update(5, **users), update(key), update(key, **users)),
        *(as_mongod_makes_it("plain", "delete", {"_id": key}), update(other), update(key)),
    ]
    batch = batch_of(events)
    found = window(batch.buffer, batch.bounds, 0, MOST_KEYS, EVERYTHING)
    for collection, wanted in found.wanted.items():
        name = collection.name
        wanted.found(answer(wanted.filter(), [{"_id": each, "in": name} for each in (key, 5)]))
    raws = RawBatch(*fill(batch.buffer, batch.bounds, found, EVERYTHING), None).raw()
    documents = [bson.decode(raw).get("fullDocument", "absent") for raw in raws]
    seen = [each["in"] if isinstance(each, dict) else each for each in documents]
    assert seen == ["orders", "users", "orders", "users", "absent", None, "orders"]


IDS_ALIKE = [1, ObjectId("1" * 24), "text", {"a": 1}]


@pytest.mark.parametrize("one", IDS_ALIKE)
def test_a_sharded_collection_is_asked_by_ids(one: Any) -> None:
    """The rest of a key chooses among documents that share an ``_id`` on several shards."""
    eu, us = {"region": "eu", "_id": one}, {"region": "us", "_id": one}
    described = {"updateDescription": {"updatedFields": {"region": "us"}}}
    batch = batch_of([update(eu), update({"_id": 2}), update(us), update(eu, **described)])
    found = window(batch.buffer, batch.bounds, 0, MOST_KEYS, EVERYTHING)
    (wanted,) = found.wanted.values()
    assert bson.decode(wanted.filter()) == {"_id": {"$in": [one, 2]}}
    (part,) = looked_up(batch, [{"_id": one, "region": "us"}, {"_id": one, "region": "eu"}])
    documents = [bson.decode(raw)["fullDocument"] for raw in part]
    assert [each and each["region"] for each in documents] == ["eu", None, "us", "us"]


@pytest.mark.parametrize("one", IDS_ALIKE)
@pytest.mark.parametrize("path", ["region", "at.region"])
def test_a_document_is_found_though_its_shard_key_has_changed(one: Any, path: str) -> None:
    """In this update, or in a later one; another document of this ``_id`` is not there."""
    events = [
        update({path: "us", "_id": one}, updateDescription={"updatedFields": fields})
        for fields in ({path: "eu"}, {"n": 1})
    ]
    document = {"_id": one, "at": {"region": "eu"}, "region": "eu"}
    (part,) = looked_up(batch_of(events), [document])
    assert [bson.decode(raw)["fullDocument"] for raw in part] == [document, document]
    gone = {"_id": one, "at": {"region": "ap"}, "region": "ap"}
    (part,) = looked_up(batch_of(events[1:]), [document, gone])
    assert [bson.decode(raw)["fullDocument"] for raw in part] == [None]


@pytest.mark.parametrize(
    "odd", [{"$type": 2}, {"$gt": ""}, {"$exists": True}, Regex("^a", "i")], ids=str
)
def test_a_value_that_could_be_read_as_a_query_is_a_value(odd: Any) -> None:
    events = [update(odd), update({"sk": odd, "_id": 1}), update("abc")]
    batch = batch_of(events)
    found = window(batch.buffer, batch.bounds, 0, MOST_KEYS, EVERYTHING)
    (wanted,) = found.wanted.values()
    filter = bson.decode(wanted.filter())
    assert filter == {"$or": [{"_id": {"$in": [1, "abc"]}}, {"_id": {"$eq": odd}}]}
    documents = [{"_id": odd, "n": 1}, {"_id": 1, "n": 2, "sk": odd}, {"_id": "abc", "n": 3}]
    (part,) = looked_up(batch, documents)
    assert [bson.decode(raw)["fullDocument"]["n"] for raw in part] == [1, 2, 3]


@pytest.mark.parametrize(
    ("most_keys", "most_bytes", "sizes"),
    [(2, EVERYTHING, [2, 2, 1]), (9, 5000, [2, 2, 1]), (9, 100, [1, 1, 1, 1, 1])],
)
def test_what_is_too_much_at_once_comes_in_parts(
    most_keys: int, most_bytes: int, sizes: list[int]
) -> None:
    documents = [{"_id": n, "text": "x" * 2000} for n in range(5)]
    parts = looked_up(batch_of([update(n) for n in range(5)]), documents, most_keys, most_bytes)
    assert [len(part) for part in parts] == sizes
    assert [bson.decode(raw)["fullDocument"]["_id"] for part in parts for raw in part] == [
        *range(5)
    ]


def test_large_keys_are_not_all_asked_for_at_once() -> None:
    batch = batch_of([update("x" * 1000 + str(n)) for n in range(3)])
    assert window(batch.buffer, batch.bounds, 0, MOST_KEYS, 1000).end == 1


def test_a_document_whose_id_does_not_come_first_is_found() -> None:
    key = ObjectId("1" * 24)
    document = bson.encode({"a": 1, "_id": key})
    ((raw,),) = looked_up(batch_of([update(key)]), [document])
    assert bson.decode(raw)["fullDocument"] == {"a": 1, "_id": key}


TOKENS = {
    TOKEN: UUID,
    f"826B040DCE000000152B022C0100296E5A1004{UUID}461E5F6964002B020004": UUID,
    f"826B040DCE000000152B022C01002B026E5A1004{UUID}46645F69640064{'6' * 24}0004": UUID,
    f"826B040DCE000000152B022C01002D1E84806E5A1004{UUID}46645F69640064{'6' * 24}0004": UUID,
    f"826B040DCE000000152B042C0100296E5A1004{UUID}463C6F7065726174696F6E54797065003C": UUID,
    "826B040DCE000000152B0229296E04": None,
    "82": None,
}


@pytest.mark.parametrize("key", [1, ObjectId("1" * 24)])
@pytest.mark.parametrize("token", TOKENS)
def test_the_collection_s_uuid_is_read_from_the_token(token: str, key: Any) -> None:
    """As mongod 6.0 and later write it; where it is not found, the name has to do."""
    batch = batch_of([update(key, _id={"_data": token})])
    found = window(batch.buffer, batch.bounds, 0, MOST_KEYS, EVERYTHING)
    uuid = TOKENS[token]
    wanted = Collection("shop", "orders", None if uuid is None else bytes.fromhex(uuid))
    assert list(found.wanted) == [wanted]


@pytest.mark.parametrize(
    "changed",
    [
        *({"ns": None}, {"documentKey": None}, {"operationType": None}),
        *({"ns": {"db": "shop"}}, {"ns": {"db": "shop", "coll": 1}}, {"ns": {"db": 1, "coll": ""}}),
    ],
    ids=str,
)
def test_an_update_that_a_pipeline_has_left_without_its_key_stays_as_it_is(
    changed: dict[str, Any],
) -> None:
    event = update(ObjectId("1" * 24), **changed)
    event = {name: value for name, value in event.items() if value is not None}
    assert looked_up(batch_of([event]), []) == [[bson.encode(event)]]


def needed(*raws: bytes) -> Any:
    """By the last event: where its document belongs, its collection and its key."""
    buffer, bounds = join(raws)
    found = window(buffer, bounds, 0, MOST_KEYS, EVERYTHING)
    if (last := found.updates[-1]) is None:
        return None
    at, documents, name = last
    of = {id(wanted.documents): collection for collection, wanted in found.wanted.items()}
    return at - bounds[-2], of[id(documents)], name


def test_an_event_needs_the_same_whichever_came_before_it() -> None:
    """Each differs from the one before in one byte: of the names, the operation, the token, …"""
    (raw,) = batch_of([update(ObjectId("1" * 24), "in a transaction, expanded")]).raw()
    changed = [raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in range(len(raw))]
    events = [each for each in changed if is_event(each)]
    seen = [needed(raw, each) for each in events]
    assert seen == [needed(each) for each in events]
    assert None in seen
    assert len({collection.uuid for _, collection, _ in filter(None, seen)}) > 2


def test_an_event_that_is_shorter_than_the_one_before_it_needs_nothing() -> None:
    end = bson.encode({"_id": {"_data": "82"}, "operationType": "invalidate"})
    assert needed(*batch_of([update(ObjectId("1" * 24))]).raw(), end) is None


def test_in_an_order_that_is_not_the_servers_the_namespace_tells_the_place() -> None:
    event = update(ObjectId("1" * 24))
    events = [dict(reversed(event.items())), event | {"another": 1}]
    ((*raws,),) = looked_up(batch_of(events), [{"_id": ObjectId("1" * 24)}])
    for raw in raws:
        fields = list(bson.decode(raw))
        assert fields.index("ns") == fields.index("fullDocument") + 1
