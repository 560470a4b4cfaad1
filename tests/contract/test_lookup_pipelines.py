"""Pipelines that ``full_document: lookup`` accepts give what the driver's own stream gives."""

from collections.abc import Iterator
from typing import Any

import anyio
import bson
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pymongo.errors import OperationFailure

from tailrace.config.lookup_stages import refusal
from tests.contract.looked_up import LookedUp
from tests.mongod import ReplicaSet

FIELDS = [
    *("_id", "operationType", "ns", "documentKey", "fullDocument", "clusterTime", "wallTime"),
    *("ns.db", "ns.coll", "documentKey._id", "fullDocument.n", "updateDescription", "added"),
    *("updateDescription.updatedFields", "updateDescription.updatedFields.n", "added.more"),
]
FIELD = st.sampled_from(FIELDS)
VALUE = st.one_of(
    *(FIELD.map("${}".format), st.sampled_from(["$$ROOT", "$$REMOVE", "text", 7, None, {"a": 1}])),
    FIELD.map(lambda name: {"$ifNull": [f"$$ROOT.{name}", "none"]}),
    FIELD.map(lambda name: {"$type": f"$$CURRENT.{name}"}),
)
CONDITION = st.one_of(
    st.dictionaries(FIELD, st.sampled_from([{"$exists": True}, {"$ne": 1}, 1]), max_size=2),
    st.sampled_from(["insert", "update", "delete"]).map(lambda name: {"operationType": name}),
    VALUE.map(lambda value: {"$expr": {"$ne": [value, "none"]}}),
)
KEPT = dict.fromkeys(["operationType", "ns", "documentKey", "fullDocument"], 1)
STAGE = st.one_of(
    CONDITION.map(lambda given: {"$match": given}),
    st.dictionaries(FIELD, VALUE, min_size=1, max_size=2).map(lambda given: {"$set": given}),
    st.lists(FIELD, min_size=1, max_size=2, unique=True).map(lambda given: {"$unset": given}),
    st.dictionaries(FIELD, st.sampled_from([0, False, 1]), min_size=1, max_size=3).map(
        lambda given: {"$project": given}
    ),
    st.dictionaries(FIELD, VALUE | st.just(1), max_size=2).map(
        lambda given: {"$project": KEPT | given}
    ),
    st.sampled_from([{"$redact": "$$KEEP"}, {"$replaceWith": "$$ROOT"}]),
)
PIPELINE = st.lists(STAGE.filter(lambda stage: not refusal(stage)), min_size=1, max_size=4)


class Scene(LookedUp):
    def happen(self) -> None:
        self.begin()
        self.collection.insert_many([{"_id": n, "n": 0} for n in range(4)])
        self.collection.update_many({}, {"$set": {"n": 1, "more": "x"}})
        self.collection.update_one({"_id": 1}, [{"$unset": "more"}])
        self.collection.delete_one({"_id": 2})
        self.collection.replace_one({"_id": 3}, {"n": "replaced"})


@pytest.fixture(scope="module")
def scene(mongod: ReplicaSet) -> Iterator[Scene]:
    with mongod.client() as client:
        scene = Scene(mongod.uri, "pymongo", "lookup_pipelines", client)
        client.drop_database(scene.database)
        scene.happen()
        yield scene
        client.drop_database(scene.database)


@settings(max_examples=80, deadline=None, suppress_health_check=[*HealthCheck], derandomize=True)
@given(pipeline=PIPELINE)
def test_an_accepted_pipeline_gives_the_events_of_update_lookup(
    scene: Scene, pipeline: list[Any]
) -> None:
    """The same events with the same documents, byte for byte."""
    try:
        theirs = scene.theirs(pipeline)
    except OperationFailure:
        reject()  # such as two paths that collide
    ours = anyio.run(scene.ours, pipeline)
    assert [*map(bson.decode, ours)] == [*map(bson.decode, theirs)]
    assert ours == theirs


@pytest.mark.parametrize(
    "stage",
    [
        {"$match": {"fullDocument.n": 1}},
        {"$redact": {"$cond": [{"$gte": ["$n", 0]}, "$$PRUNE", "$$DESCEND"]}},
        {"$project": {"operationType": 1, "ns": 1, "documentKey": 1}},
        {"$unset": "ns"},
        {"$set": {"operationType": "changed"}},
        {"$set": {"all": "$$ROOT"}},
    ],
    ids=str,
)
async def test_a_refused_stage_would_give_other_events(scene: Scene, stage: Any) -> None:
    assert refusal(stage)
    assert await scene.ours([stage]) != scene.theirs([stage])
