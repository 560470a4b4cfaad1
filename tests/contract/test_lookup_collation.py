"""A collection whose collation makes different ``_id``s equal, as for ``updateLookup``."""

from collections.abc import Iterator
from typing import Any

import bson
import pytest

from tests.contract.looked_up import LookedUp
from tests.mongod import ReplicaSet

IGNORES_CASE = {"locale": "en", "strength": 2}
KEYS: list[tuple[Any, Any]] = [
    ("Abc", "aBC"),
    ({"name": "Q"}, {"name": "q"}),
    ("B", "b"),
    (7, 7.0),
    ("gone", None),
]
"""``_id``s of deleted documents and what was inserted instead."""


@pytest.fixture
def scene(mongod: ReplicaSet, database: str) -> Iterator[LookedUp]:
    with mongod.client() as client:
        yield LookedUp(mongod.uri, "pymongo", database, client)


def replaced(scene: LookedUp) -> None:
    """Updates and deletes documents, and inserts each again with another spelling."""
    scene.begin()
    collection = scene.collection
    for before, after in KEYS:
        collection.insert_one({"_id": before, "region": "EU"})
        collection.update_one({"_id": before}, {"$set": {"n": 1}})
        collection.delete_one({"_id": before})
        if after is not None:
            collection.insert_one({"_id": after, "region": "eu", "n": 2})
    collection.update_one({"_id": "aBC"}, {"$set": {"n": 3}})


@pytest.mark.parametrize(
    "pipeline",
    [
        [],
        [{"$set": {"documentKey": {"_id": "$documentKey._id", "region": "EU"}}}],
    ],
    ids=["", "keys as of a sharded collection"],
)
async def test_a_document_is_found_by_the_collection_s_collation(
    scene: LookedUp, pipeline: list[Any]
) -> None:
    scene.client[scene.database].create_collection("c", collation=IGNORES_CASE)
    replaced(scene)
    theirs, ours = scene.theirs(pipeline), await scene.ours(pipeline)
    assert [*map(bson.decode, ours)] == [*map(bson.decode, theirs)]
    assert ours == theirs
    changes = [bson.decode(event) for event in ours]
    found = [each["fullDocument"] for each in changes if each["operationType"] == "update"]
    assert [each and each["_id"] for each in found] == [
        *("aBC", {"name": "q"}, "b", 7.0, None, "aBC")
    ]


async def test_without_a_collation_another_spelling_is_another_document(scene: LookedUp) -> None:
    replaced(scene)
    theirs, ours = scene.theirs([]), await scene.ours([])
    assert ours == theirs
    (first, *_) = [each for each in map(bson.decode, ours) if each["operationType"] == "update"]
    assert first["fullDocument"] is None
