"""What descriptions of updates have of fields that are taken, left out and renamed."""

from typing import Any

import bson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tailrace.event import ChangeEvent
from tailrace.event.bson import encoded
from tailrace.event.field_mapping import FieldMapping
from tailrace.event.update_description import apply_update
from tests.unit.event.described import Document, described

NAMES = ["a", "b", "c", "0", "17", ""]
DOTTED = ["a.b", "b.0", ".", "0.a"]
VALUES = st.recursive(
    st.sampled_from([1, 2.5, "x", None, True]),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(st.sampled_from([*NAMES, *DOTTED]), values, max_size=4)
    ),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.sampled_from([*NAMES, *DOTTED]), VALUES, max_size=5)
PATHS = st.sampled_from(["a", "b", "a.a", "a.b", "a.b.a", "b.c", "c.b.b", "0.a"])


@st.composite
def mappings(draw: st.DrawFn) -> FieldMapping:
    take, leave_out = (draw(st.lists(PATHS, max_size=3, unique=True)) for _ in range(2))
    # No field of the documents has these names.
    rename = draw(st.dictionaries(PATHS, st.sampled_from(["d", "e", "f", "g"]), max_size=3))
    assume(len(set(rename.values())) == len(rename))
    return FieldMapping(take, leave_out, rename, None, draw(st.sampled_from([{}, {"b": 0}])))


@given(mappings(), DOCUMENTS, DOCUMENTS)
def test_any_update_makes_what_the_whole_document_has(
    mapping: FieldMapping, before: Document, after: Document
) -> None:
    try:
        description = described(before, after)
    except ValueError:
        assume(False)
    images: dict[str, Any] = {"fullDocument": after, "fullDocumentBeforeChange": before}
    event = ChangeEvent.from_document({**images, "updateDescription": description})
    (found,) = mapping.of([event])
    document = found.document
    made = apply_update(document["fullDocumentBeforeChange"], document["updateDescription"])
    assert made == document["fullDocument"]


@pytest.mark.parametrize("order", [1, -1], ids=["as the server", "reshaped"])
def test_a_field_that_becomes_a_value_of_which_nothing_is_taken_is_removed(order: int) -> None:
    parts: list[tuple[str, Any]] = [
        ("updatedFields", {"customer": None, "items.0": 7, "total": 5}),
        ("removedFields", ["customer.card", "note"]),
    ]
    event = ChangeEvent.from_document({"updateDescription": dict(parts[::order])})
    (found,) = FieldMapping(["customer.name", "items.sku", "note"], [], {"customer": "who"}).of(
        [event]
    )
    assert found.update_description == {
        "updatedFields": {"items.0": None},
        "removedFields": ["note", "who"],
    }


ELEMENTS = [7, None, {"sku": "a", "cost": 3}, {"cost": 4}, [{"sku": "b"}, 5], "x"]


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ({"updatedFields": {"items.2.sku": "c"}},
         [None, None, {"sku": "c"}, {}, [{"sku": "b"}, None], None]),
        ({"updatedFields": {"items.3": 7, "items.4.1": {"sku": "d"}}},
         [None, None, {"sku": "a"}, None, [{"sku": "b"}, {"sku": "d"}], None]),
        ({"updatedFields": {"items.6": 7, "items.7": {"sku": "e"}}},
         [None, None, {"sku": "a"}, {}, [{"sku": "b"}, None], None, None, {"sku": "e"}]),
        ({"truncatedArrays": [{"field": "items", "newSize": 3}]}, [None, None, {"sku": "a"}]),
        ({"truncatedArrays": [{"field": "items.4", "newSize": 1}],
          "updatedFields": {"items.0": {"sku": "f"}}},
         [{"sku": "f"}, None, {"sku": "a"}, {}, [{"sku": "b"}], None]),
    ],
)  # fmt: skip
def test_the_indices_of_updates_are_those_of_arrays_of_which_fields_are_taken(
    description: dict[str, Any], expected: list[Any]
) -> None:
    """An update alone does not tell which elements the array has before an index."""
    before = {"_id": 1, "items": ELEMENTS, "n": 1}
    description = {"updatedFields": {}, "removedFields": [], **description}
    after = apply_update(before, description)
    event = ChangeEvent.from_document({"fullDocument": after, "updateDescription": description})
    mapping = FieldMapping(["items.sku"], [], {})
    (found,) = mapping.of([event])
    assert found.full_document == {"_id": 1, "items": expected}
    mapped_before = bson.decode(mapping.of_document(bson.encode(before)))
    assert apply_update(mapped_before, found.document["updateDescription"]) == found.full_document


def test_a_field_whose_name_has_dots_is_no_path_where_the_server_says_so() -> None:
    """Of one that an update has beside the path, it does not say so."""
    exact = {"a.b": ["a.b"], "c.0.x.y": ["c", 0, "x.y"]}
    update = {
        "updatedFields": {"a.b": 1, "c.0.x.y": 2},
        "removedFields": [],
        "disambiguatedPaths": exact,
    }
    mapping = FieldMapping([], ["a.b", "c.x"], {"c": "d"})
    event = ChangeEvent.from_document({"updateDescription": update})
    assert mapping.of([event])[0].update_description == {
        "updatedFields": {"a.b": 1, "d.0.x.y": 2},
        "removedFields": [],
        "disambiguatedPaths": {"a.b": ["a.b"], "d.0.x.y": ["d", 0, "x.y"]},
    }
    twice = encoded(2 * bson.encode({"a.b": 1})[4:-1])
    parts = bson.encode({"disambiguatedPaths": exact})[4:-1]
    raw = encoded(b"\x03updatedFields\0" + twice + parts)
    event = ChangeEvent.from_raw(encoded(b"\x03updateDescription\0" + raw))
    found = mapping.of([event])[0].update_description
    assert found == {"updatedFields": {}, "disambiguatedPaths": {"d.0.x.y": ["d", 0, "x.y"]}}


def test_a_field_that_is_removed_under_the_name_that_another_gets_is_not_removed() -> None:
    """As ``$rename`` of the field to the former name of the other, which is not there any more."""
    update = {"updatedFields": {"name": "Ann"}, "removedFields": ["buyer"]}
    event = ChangeEvent.from_document({"updateDescription": update})
    (found,) = FieldMapping([], [], {"name": "buyer"}).of([event])
    assert found.update_description == {"updatedFields": {"buyer": "Ann"}, "removedFields": []}


def test_an_update_of_a_field_and_of_the_one_that_gets_its_name_is_an_error() -> None:
    update = {"updatedFields": {"name": "Ann", "buyer": "Bob"}, "removedFields": []}
    event = ChangeEvent.from_document({"_id": {"_data": "82"}, "updateDescription": update})
    with pytest.raises(ValueError, match="rename makes two fields 'buyer'"):
        FieldMapping([], [], {"name": "buyer"}).of([event])
    (found,) = FieldMapping([], ["buyer"], {"name": "buyer"}).of([event])
    assert found.update_description == {"updatedFields": {"buyer": "Ann"}, "removedFields": []}
