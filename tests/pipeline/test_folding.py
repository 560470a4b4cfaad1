"""Folding of update descriptions: exact for any field names, or set aside."""

import json
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, ObjectId
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event.document_key import identity
from tailrace.event.extended_json import to_json
from tailrace.event.update_description import apply_update, updated_text
from tailrace.pipeline.decoding import key_of
from tailrace.pipeline.lineage import Statement
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline
from tests.unit.event.documents import EVERY_ID, documents, quick, values

TYPES = [
    *("$oid", "$code", "$date", "$numberInt", "$numberLong", "$numberDouble", "$numberDecimal"),
    *("$binary", "$timestamp", "$regularExpression", "$symbol", "$undefined", "$minKey", "$maxKey"),
    *("$dbPointer", "$scope", "$ref", "$id"),
]
LOOK_ALIKES: dict[str, Any] = {
    "$oid": "5f5e0f0f0f0f0f0f0f0f0f0f",
    "$date": "2026-01-01T00:00:00Z",
    "$numberInt": "5",
    "$code": "f()",
    "$minKey": 1,
    "$timestamp": {"t": 1, "i": 2},
    "$undefined": True,
}
"""Documents of one such field that look exactly like the Extended JSON of a type."""


def canonical(document: dict[str, Any]) -> str:
    return to_json(bson.encode(document), canonical=True)


def described(updated: dict[str, Any], removed: list[str] | None = None) -> dict[str, Any]:
    return {"updatedFields": updated, "removedFields": removed or [], "truncatedArrays": []}


@pytest.mark.parametrize("value", [5, "text", {"x": [1]}, 2.5, None], ids=repr)
def test_a_field_may_be_named_as_a_type(value: Any) -> None:
    """First in the document that is set, and then in a change to that document."""
    for name in TYPES:
        before = {"_id": 1, "a": {name: value, "b": 1}, name: value}
        for update in (
            described({name: value, "b": 2}),
            described({"a.b": 2}),
            described({}, ["a.c"]),
            described({f"a.{name}": 2}),
        ):
            expected = apply_update(before, update)
            assert updated_text(canonical(before), canonical(update)) == canonical(expected)


def test_documents_that_look_like_values_are_changed_as_documents() -> None:
    for name, value in LOOK_ALIKES.items():
        before = {"_id": 1, "a": {name: value}}
        after = {"_id": 1, "a": {name: value, "b": Int64(2)}}
        update = described({"a.b": Int64(2)})
        assert updated_text(canonical(before), canonical(update)) == canonical(after)
        after = {**before, **LOOK_ALIKES}
        assert updated_text(canonical(before), canonical(described(LOOK_ALIKES))) == canonical(
            after
        )


def test_typed_values_stay_what_they_are() -> None:
    before = {"_id": ObjectId(), "a": [{}, 2, 3], "d": {"o": ObjectId(), "n": Int64(5)}}
    update = {
        "updatedFields": {"d.x": 1.5, "a.0.0": Int64(7)},
        "removedFields": ["d.n"],
        "truncatedArrays": [{"field": "a", "newSize": 2}],
        "disambiguatedPaths": {"a.0.0": ["a", 0, "0"]},
    }
    expected = apply_update(before, update)
    assert updated_text(canonical(before), canonical(update)) == canonical(expected)


@quick
@given(documents, st.dictionaries(st.sampled_from(["a", "b", *TYPES]), values, max_size=4))
def test_top_level_fields_of_any_name_and_value(
    before: dict[str, Any], updated: dict[str, Any]
) -> None:
    before = bson.decode(bson.encode(before))
    expected = {**before, **updated}
    assert json.loads(updated_text(canonical(before), canonical(described(updated)))) == json.loads(
        canonical(expected)
    )


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"updatedFields": {"a": 1}},
        {"updatedFields": [1], "removedFields": []},
        {"updatedFields": {}, "removedFields": [5]},
        {"updatedFields": {}, "removedFields": "ab"},
        described({}) | {"truncatedArrays": [5]},
        described({}) | {"truncatedArrays": [{"field": "a"}]},
        described({}) | {"truncatedArrays": [{"field": "a", "newSize": "x"}]},
        described({"a": 1}) | {"disambiguatedPaths": {"a": 5}},
    ],
    ids=repr,
)
def test_an_invalid_description_is_an_error(description: dict[str, Any]) -> None:
    with pytest.raises((LookupError, TypeError, ValueError, AttributeError)):
        updated_text(canonical({"_id": 1, "a": [1]}), canonical(description))


@pytest.mark.parametrize(
    ("document_key", "key"),
    [
        ({"region": "eu"}, None),
        ({}, None),
        ({"_id": None}, "null"),
        ({"_id": Decimal128("1.00")}, '{"$numberLong":"1"}'),
        ({"_id": {"a": 1.0}}, '{"a":{"$numberLong":"1"}}'),
        ({"_id": {"$numberInt": "x"}}, '{"$numberInt":"x"}'),
        ({"_id": {"$numberInt": "1", "b": "2"}}, '{"$numberInt":"1","b":"2"}'),
    ],
    ids=repr,
)
def test_a_key_is_the_id_where_there_is_one(document_key: dict[str, Any], key: str | None) -> None:
    assert key_of(canonical(document_key)) == key


def test_keys_are_equal_where_the_daemon_has_them_equal() -> None:
    numbers = [7.0, Decimal128("7.00"), Decimal128("1.5"), {"a": {"b": [1.0]}}]
    ids = [{"_id": value} for value in (*EVERY_ID.values(), *numbers)]
    texts = [key_of(canonical(each)) for each in ids]
    elements = [identity(bson.encode(each), 0) for each in ids]
    for text, element in zip(texts, elements, strict=True):
        assert [text == other for other in texts] == [element == other for other in elements]


@pytest.mark.parametrize("to", [5, "db and coll", ["db", "coll"], {"db": 1, "coll": 2}, {}, None])
def test_a_rename_without_a_target_is_ignored(to: Any) -> None:
    row = {"operation": "rename", "database": "shop", "collection": "a", "position": 1}
    assert Statement.all_of({**row, "extra": canonical({"to": to})}) == []


def test_events_that_cannot_be_applied_are_set_aside(pipeline: Pipeline) -> None:
    """All other events are applied."""
    s = Stream()
    first = [s.insert("k", n=1), s.insert("l", a={"$date": 5})]
    odd = s.update("k", n=2)
    odd["updateDescription"] = {"updatedFields": {"n": 2}}
    whole = s.update("l")
    whole["updateDescription"]["updatedFields"] = {"$oid": 5, "n": 2}
    below = s.update("l", a__b=1)
    nowhere = s.insert("m", n=1) | {"ns": {"coll": "orders"}}
    keyless = s.insert("m", n=1)
    del keyless["documentKey"]
    part = s.insert("m", n=1) | {"documentKey": {"region": "eu"}}
    timeless = s.insert("o", n=1)
    del timeless["clusterTime"]
    pipeline.land(first)
    pipeline.land([odd, whole, below, nowhere, keyless, part, timeless])
    progress = pipeline.run(history=False)
    assert pipeline.current() == {
        "k": None,
        "l": {"a": {"$date": 5, "b": 1}, "$oid": 5, "n": 2},
        "o": {"n": 1},
    }
    assert progress.set_aside == 4
    assert len(pipeline.table("changes")) == 9
    counted = [(row["stage"], row["set_aside"]) for row in pipeline.table("quality")]
    assert sorted(each for each in counted if each[1]) == [
        ("changes", 1),
        ("changes", 2),
        ("current", 1),
    ]
