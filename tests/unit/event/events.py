"""Events in mongod's order and in any other, with every value that a field may have."""

from datetime import UTC, datetime
from typing import Any

from bson import Binary, Int64, ObjectId
from bson.timestamp import Timestamp
from hypothesis import strategies as st

from tailrace.event import Namespace
from tests.unit.event.documents import documents, names, scalars, timestamps

TYPES: dict[str, tuple[str, Any]] = {
    "ns": ("ns", Namespace),
    "to": ("to", Namespace),
    "document_key": ("documentKey", dict),
    "full_document": ("fullDocument", dict),
    "full_document_before_change": ("fullDocumentBeforeChange", dict),
    "update_description": ("updateDescription", dict),
    "operation_description": ("operationDescription", dict),
    "cluster_time": ("clusterTime", Timestamp),
    "wall_time": ("wallTime", datetime),
    "collection_uuid": ("collectionUUID", Binary),
    "ns_type": ("nsType", str),
    "lsid": ("lsid", dict),
    "txn_number": ("txnNumber", int),
}
"""By attribute, the field that it reads, and the type that it promises where it is not None."""

LSID = {"id": Binary(b"i" * 16, 4), "uid": b"u" * 32}
ORDERS = {"db": "shop", "coll": "orders"}
IN_TRANSACTION = {"txnNumber": Int64(3), "lsid": LSID}

_tokens = st.text("0123456789ABCDEF", max_size=40).map(lambda data: {"_data": data})
_operations = st.sampled_from(
    ["insert", "update", "replace", "delete", "drop", "refineCollectionShardKey", "", "日本"]
)
_ids = st.one_of(st.binary(min_size=12, max_size=12).map(ObjectId), scalars)
_keys = st.one_of(
    st.builds(lambda one: {"_id": one}, _ids),
    st.builds(lambda one, shard: {"region": shard, "_id": one}, _ids, scalars),
    st.just({"region": "eu"}),
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """In mongod's order, with or without each field; user data that looks like an event's own."""
    image = st.one_of(st.none(), documents, st.just({"ns": ORDERS, "documentKey": {"_id": 0}}))
    required = {"_id": _tokens, "operationType": _operations}
    optional = {
        "clusterTime": timestamps,
        "collectionUUID": st.just(Binary(b"c" * 16, 4)),
        "wallTime": st.just(datetime(2026, 1, 1, tzinfo=UTC)),
        "fullDocument": image,
        "ns": st.builds(lambda db, coll: {"db": db, "coll": coll}, names, names),
        "documentKey": _keys,
        "updateDescription": documents,
        "fullDocumentBeforeChange": image,
        "splitEvent": st.just({"fragment": 1, "of": 2}),
    }
    transaction = {
        "txnNumber": st.just(Int64(3)),
        "lsid": st.sampled_from([LSID, LSID, {**LSID, "txnNumber": Int64(1)}]),
    }
    event: dict[str, Any] = {}
    for name, values in (transaction | required | optional).items():
        if name in required or draw(st.booleans()):
            event[name] = draw(values)
    if not draw(st.integers(0, 3)):
        event["fullDocument"] = event.pop("fullDocument", None)  # as mongos looks it up
    return event if draw(st.integers(0, 4)) else dict(draw(st.permutations(list(event.items()))))


_TIME = {"clusterTime": Timestamp(1, 1)}
_UUID, _WALL_TIME = {"collectionUUID": Binary(b"c" * 16, 4)}, {"wallTime": datetime(2026, 1, 1)}
SURROUNDINGS: dict[str, Any] = {
    "plain": ({}, {**_TIME, **_WALL_TIME}),
    "before 6.0": ({}, _TIME),
    "expanded": ({}, {**_TIME, **_UUID, **_WALL_TIME}),
    "in a transaction": (IN_TRANSACTION, {**_TIME, **_WALL_TIME}),
    "in a transaction, before 6.0": (IN_TRANSACTION, _TIME),
    "in a transaction, expanded": (IN_TRANSACTION, {**_TIME, **_UUID, **_WALL_TIME}),
}
IMAGES: dict[str, Any] = {
    "insert": {"fullDocument": {"a": 1}},
    "update": {"fullDocument": None},
    "delete": {},
}


def as_mongod_makes_it(surroundings: str, operation: str, key: dict[str, Any]) -> dict[str, Any]:
    """An event with that document key."""
    first, more = SURROUNDINGS[surroundings]
    head = {**first, "_id": {"_data": "82"}, "operationType": operation, **more}
    place = {"ns": ORDERS, "documentKey": key}
    return {**head, **IMAGES[operation], **place, "updateDescription": {"updatedFields": {}}}
