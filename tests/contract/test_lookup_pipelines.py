"""Pipelines that ``full_document: lookup`` accepts give what the driver's own stream gives."""

from collections.abc import Iterator
from typing import Any

import anyio
import bson
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pymongo.errors import OperationFailure

from tailrace.config.lookup_stages import refusal
from tailrace.model import Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions
from tailrace.stream.lookup import LookupStream
from tests.contract.collection import CollectionScene
from tests.contract.streams import connected
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


class Scene(CollectionScene):
    """A collection with a history, which begins at ``start``."""

    start: Timestamp

    def happen(self) -> None:
        self.start = self.now
        self.collection.insert_many([{"_id": n, "n": 0} for n in range(4)])
        self.collection.update_many({}, {"$set": {"n": 1, "more": "x"}})
        self.collection.update_one({"_id": 1}, [{"$unset": "more"}])
        self.collection.delete_one({"_id": 2})
        self.collection.replace_one({"_id": 3}, {"n": "replaced"})

    def theirs(self, pipeline: list[Any]) -> list[bytes]:
        """All events of the driver's own stream, with the documents that the server looks up."""
        found = []
        undecoded: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
        with self.collection.with_options(undecoded).watch(
            pipeline,
            full_document="updateLookup",
            start_at_operation_time=self.start,
            max_await_time_ms=20,
        ) as stream:
            while (event := stream.try_next()) is not None:
                found.append(bytes(event.raw))
        return found

    async def ours(self, pipeline: list[Any]) -> list[bytes]:
        options = ChangeStreamOptions(tuple(pipeline), max_await_time_ms=20)
        start = StartPoint(at_operation_time=self.start)
        found: list[bytes] = []
        async with (
            connected(self.name, self.uri) as driver,
            ChangeStream(driver, Scope("c", self.database, "c"), options, start) as stream,
        ):
            looking = LookupStream(stream, driver)
            await looking.next_batch()  # the aggregate's own reply, which is empty
            while len(batch := await looking.next_batch()):
                found += batch.raw()
        return found


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
