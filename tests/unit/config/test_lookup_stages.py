"""Which pipelines are accepted with ``full_document: lookup``, and what is said of the others."""

from typing import Any

import pytest

from tests.unit.config.files import minimal, parse, problems

KEPT = {"operationType": 1, "ns": True, "documentKey": 1, "fullDocument": 1}

ACCEPTED: list[dict[str, Any]] = [
    {"$match": {"ns.coll": "orders", "$or": [{"operationType": "update"}, {"documentKey._id": 1}]}},
    {"$match": {"$expr": {"$eq": ["$$ROOT.ns.coll", "orders"]}}},
    {"$match": {"fullDocumentBeforeChange.n": 1}},
    {"$set": {"source": "shop", "where": "$ns.coll", "updateDescription.more": 1}},
    {"$addFields": {"wallTime": "$$REMOVE"}},
    {"$unset": "updateDescription"},
    {"$unset": ["updateDescription.removedFields", "wallTime", "clusterTime", "namespace"]},
    {"$project": {"updateDescription": 0, "lsid": {"id": False}}},
    {"$project": {"_id": 1, "wallTime": 0}},
    {"$project": KEPT},
    {"$project": {**KEPT, "_id": 1, "changed": "$updateDescription.updatedFields"}},
    {"$changeStreamSplitLargeEvent": {}},
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"$unset": "ns.db"}, "$unset changes or removes ns, which full_document: lookup needs"),
    ({"$unset": ["wallTime", "documentKey._id"]}, "changes or removes documentKey"),
    ({"$unset": "_id"}, "changes or removes _id"),
    ({"$set": {"operationType": "change"}}, "$set changes or removes operationType"),
    ({"$addFields": {"ns.db": "other"}}, "$addFields changes or removes ns"),
    ({"$set": {"clusterTime": None}}, "changes or removes clusterTime"),
    ({"$set": {"fullDocument": {"a": 1}}}, "changes or removes fullDocument"),
    ({"$set": {"all": "$$ROOT"}}, "$$ROOT may read the whole event"),
    ({"$set": {"n": {"$getField": {"$concat": ["full", "Document"]}}}}, "$getField may read"),
    ({"$match": {"$jsonSchema": {"maxProperties": 7}}}, "$jsonSchema may read the whole event"),
    ({"$match": {"fullDocument": None}}, "names fullDocument, which updates get only after"),
    ({"$project": {"ns": 0}}, "$project changes or removes ns"),
    ({"$project": {"documentKey": {"region": 0}}}, "$project changes or removes documentKey"),
    ({"$project": {"operationType": 1, "ns": 1, "documentKey": 1}}, "removes or changes fullDoc"),
    ({"$project": {**KEPT, "fullDocument": {"a": 1}}}, "removes or changes fullDocument"),
    ({"$project": {**KEPT, "_id._data": 1}}, "removes or changes _id"),
    ({"$project": {**KEPT, "_id": 0}}, "removes or changes _id"),
    ({"$project": {**KEPT, "clusterTime": "$wallTime"}}, "changes or removes clusterTime"),
    ({"$project": {**KEPT, "all": "$$CURRENT"}}, "$$CURRENT may read the whole event"),
    ({"$project": {"fullDocument.secret": 0}}, "$project changes or removes fullDocument"),
    ({"$redact": "$$KEEP"}, "does not accept $redact, which may change what documents are found"),
    ({"$replaceRoot": {"newRoot": "$ns"}}, "does not accept $replaceRoot"),
    ({"$replaceWith": "$ns"}, "does not accept $replaceWith"),
    ({"$ofANewerServer": {}}, "does not accept $ofANewerServer"),
]


def scope(stage: dict[str, Any], way: str = "lookup") -> dict[str, Any]:
    before = [{"$match": {"ns.coll": "orders"}}]
    return minimal(scope={"full_document": way, "pipeline": [*before, stage]})


@pytest.mark.parametrize("stage", ACCEPTED, ids=str)
def test_a_stage_that_leaves_what_the_look_up_needs_is_accepted(stage: dict[str, Any]) -> None:
    assert parse(scope(stage)).scopes[0].pipeline[1] == stage


@pytest.mark.parametrize(("stage", "expected"), REFUSED, ids=str)
def test_any_other_stage_is_refused_with_its_path_and_the_reason(
    stage: dict[str, Any], expected: str
) -> None:
    [(path, message)] = problems(scope(stage)).items()
    assert path == "scopes[0].pipeline[1]"
    assert expected in message
    assert "full_document: updateLookup" in message


@pytest.mark.parametrize(("stage", "message"), REFUSED, ids=str)
def test_update_lookup_takes_any_stage(stage: dict[str, Any], message: str) -> None:
    assert parse(scope(stage, "updateLookup")).scopes[0].pipeline[1] == stage
