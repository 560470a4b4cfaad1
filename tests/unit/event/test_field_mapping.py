"""Which fields of documents a destination gets, and under which names."""

from typing import Any

import bson
import pytest

from tailrace.event import ChangeEvent
from tailrace.event.bson import encoded, walk
from tailrace.event.field_mapping import FieldMapping
from tailrace.event.flattening import Flattening

DOCUMENT = {
    "_id": 1,
    "total": 12,
    "customer": {"name": "Ann", "card": "4111"},
    "items": [{"sku": "a", "cost": 3}, {"sku": "b", "cost": 4}, 7],
}


def mapped(document: dict[str, Any], mapping: FieldMapping) -> dict[str, Any]:
    return bson.decode(mapping.of_document(bson.encode(document)))


@pytest.mark.parametrize(
    ("take", "leave_out", "rename", "expected"),
    [
        (["total"], [], {}, {"_id": 1, "total": 12}),
        (["customer.name"], [], {}, {"_id": 1, "customer": {"name": "Ann"}}),
        (["customer"], ["customer.card"], {}, {"_id": 1, "customer": {"name": "Ann"}}),
        (["items.sku"], [], {}, {"_id": 1, "items": [{"sku": "a"}, {"sku": "b"}, None]}),
        (["total.cents"], [], {}, {"_id": 1}),
        (["nothing"], [], {}, {"_id": 1}),
        ([], ["items", "customer"], {}, {"_id": 1, "total": 12}),
        ([], ["customer.card", "items"], {"customer.name": "buyer", "total": "sum"},
         {"_id": 1, "sum": 12, "customer": {"buyer": "Ann"}}),
        (["total"], [], {"total": "sum", "customer.name": "buyer"}, {"_id": 1, "sum": 12}),
        ([], ["items.cost", "customer"], {},
         {"_id": 1, "total": 12, "items": [{"sku": "a"}, {"sku": "b"}, 7]}),
    ],
)  # fmt: skip
def test_a_document_has_the_fields_that_are_taken_under_their_new_names(
    take: list[str], leave_out: list[str], rename: dict[str, str], expected: dict[str, Any]
) -> None:
    assert mapped(DOCUMENT, FieldMapping(take, leave_out, rename)) == expected


def test_the_documents_and_the_update_description_of_an_event_are_mapped_alike() -> None:
    event = ChangeEvent.from_document(
        {
            "_id": {"_data": "82"},
            "operationType": "update",
            "documentKey": {"_id": 1, "total": 12},
            "fullDocument": DOCUMENT,
            "fullDocumentBeforeChange": {"_id": 1, "total": 11, "customer": None},
            "updateDescription": {
                "updatedFields": {"total": 12, "customer.name": "Ann", "items.0.sku": "a", "x": 1},
                "removedFields": ["customer.card", "customer.age", "y"],
                "truncatedArrays": [
                    {"field": "items", "newSize": 3},
                    {"field": "z", "newSize": 1},
                ],
                "disambiguatedPaths": {"items.0": ["items", 0]},
            },
        }
    )
    mapping = FieldMapping(
        ["total", "customer", "items.sku"], ["customer.card"], {"customer": "who", "total": "sum"}
    )
    (found,) = mapping.of([event])
    assert found.document == {
        "_id": {"_data": "82"},
        "operationType": "update",
        "documentKey": {"_id": 1, "total": 12},
        "fullDocument": {
            "_id": 1,
            "sum": 12,
            "who": {"name": "Ann"},
            "items": [{"sku": "a"}, {"sku": "b"}, None],
        },
        "fullDocumentBeforeChange": {"_id": 1, "sum": 11, "who": None},
        "updateDescription": {
            "updatedFields": {"sum": 12, "who.name": "Ann", "items.0.sku": "a"},
            "removedFields": ["who.age"],
            "truncatedArrays": [{"field": "items", "newSize": 3}],
            "disambiguatedPaths": {"items.0": ["items", 0]},
        },
    }
    assert found.token == event.token
    assert found.key == event.key


def test_a_field_whose_name_is_a_number_is_like_an_index_in_documents_and_updates() -> None:
    document = {"_id": 1, "items": {"0": {"sku": "a", "cost": 3}, "1": 7}, "0": {"sku": "b"}}
    update = {
        "updatedFields": {"items.0.sku": "a", "items.0.cost": 3, "items.1": 7, "0.sku": "b"},
        "removedFields": ["items.2.sku", "items.2.cost"],
    }
    event = ChangeEvent.from_document({"fullDocument": document, "updateDescription": update})
    (found,) = FieldMapping(["items.sku"], [], {"items.sku": "code"}).of([event])
    assert found.full_document == {"_id": 1, "items": {"0": {"code": "a"}, "1": None}}
    assert found.update_description == {
        "updatedFields": {"items.0.code": "a", "items.1": None},
        "removedFields": ["items.2.code"],
    }
    (found,) = FieldMapping([], ["items.cost", "sku"], {}).of([event])
    assert found.full_document == {**document, "items": {"0": {"sku": "a"}, "1": 7}}
    assert found.update_description == {
        "updatedFields": {"items.0.sku": "a", "items.1": 7, "0.sku": "b"},
        "removedFields": ["items.2.sku"],
    }


@pytest.mark.parametrize(
    ("take", "leave_out", "rename"),
    [(["items.0.sku"], [], {}), ([], ["items.0"], {}), ([], [], {"a.b.17.c": "d"})],
)
def test_a_path_with_an_index_is_refused(
    take: list[str], leave_out: list[str], rename: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="has an array's index"):
        FieldMapping(take, leave_out, rename)


def test_two_fields_cannot_get_one_name() -> None:
    with pytest.raises(ValueError, match="b and a would have one name, 'b'"):
        FieldMapping(["b"], [], {"a": "b"})


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("name", {"_id": 1, "name": "Ann", "buyer": "Bob"}),
        ("customer.name", {"_id": 1, "customer": {"buyer": "Bob", "name": "Ann"}}),
        ("items.name", {"_id": 1, "items": [{"name": "Ann"}, {"buyer": "Bob", "name": "Ann"}]}),
    ],
)
def test_a_new_name_that_another_field_of_the_document_has_is_an_error(
    path: str, document: dict[str, Any]
) -> None:
    mapping = FieldMapping([], [], {path: "buyer"})
    with pytest.raises(ValueError, match="rename makes two fields 'buyer'"):
        mapped(document, mapping)


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        (FieldMapping([], [], {"name": "buyer"}), [("n", 1), ("buyer", "Ann"), ("n", 2)]),
        (FieldMapping([], [], {"n": "m"}), [("m", 1), ("name", "Ann"), ("m", 2)]),
        (FieldMapping([], [], {}, Flattening()), [("n", 1), ("name", "Ann"), ("n", 2)]),
    ],
)
def test_a_field_that_a_document_has_twice_is_not_taken_for_one_that_gets_its_name(
    mapping: FieldMapping, expected: list[tuple[str, Any]]
) -> None:
    parts = [{"n": 1}, {"name": "Ann"}, {"n": 2}]
    raw = encoded(b"".join(bson.encode(part)[4:-1] for part in parts))
    found = mapping.of_document(raw)
    fields = [
        bson.decode(encoded(found[at - len(n) - 2 : end])) for n, _, at, end in walk(found, 0)
    ]
    assert [pair for each in fields for pair in each.items()] == expected


def test_names_that_meet_in_a_large_document_are_found_at_once() -> None:
    document = {f"f{at}": at for at in range(100_000)} | {"a": {"b": 1}, "a_b": 2}
    with pytest.raises(ValueError, match="flatten makes two fields 'a_b'"):
        mapped(document, FieldMapping([], [], {}, Flattening()))
    with pytest.raises(ValueError, match="rename makes two fields 'a_b'"):
        mapped(document, FieldMapping([], [], {"a": "a_b"}))


@pytest.mark.parametrize(
    ("flatten", "expected"),
    [
        (Flattening(), {"_id": {"k": 1}, "a_b_c": 1, "a_d": [{"e": 1}], "a_f": {}, "g": 2}),
        (Flattening(1, "."),
         {"_id": {"k": 1}, "a.b": {"c": 1}, "a.d": [{"e": 1}], "a.f": {}, "g": 2}),
    ],
)  # fmt: skip
def test_documents_within_are_flattened_with_a_separator_but_for_the_id_and_arrays(
    flatten: Flattening, expected: dict[str, Any]
) -> None:
    document = {"_id": {"k": 1}, "a": {"b": {"c": 1}, "d": [{"e": 1}], "f": {}}, "g": 2}
    assert mapped(document, FieldMapping([], [], {}, flatten)) == expected


def test_a_document_whose_names_multiply_is_refused_before_it_takes_the_memory() -> None:
    document: dict[str, Any] = {str(number): number for number in range(2000)}
    for _ in range(90):
        document = {"x" * 1000: document}
    with pytest.raises(ValueError, match="flatten makes a document of more than 67108864 bytes"):
        mapped(document, FieldMapping([], [], {}, Flattening()))


def test_two_fields_that_are_flattened_to_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="flatten makes two fields 'a_b'"):
        mapped({"_id": 1, "a": {"b": 1}, "a_b": 2}, FieldMapping([], [], {}, Flattening()))


def test_rules_apply_in_order_and_constants_replace_fields_of_their_names() -> None:
    mapping = FieldMapping(
        [], ["a.x"], {"a.y": "z", "old": "region"}, Flattening(), {"region": "eu", "n": {"m": 1}}
    )
    assert mapped({"_id": 1, "a": {"x": 1, "y": 2}, "old": "us"}, mapping) == {
        "_id": 1,
        "a_z": 2,
        "region": "eu",
        "n": {"m": 1},
    }


def test_an_update_does_not_change_constants_and_has_no_description_of_flattened_fields() -> None:
    event = ChangeEvent.from_document(
        {
            "_id": {"_data": "82"},
            "operationType": "update",
            "fullDocument": {"_id": 1, "a": {"b": 1}},
            "updateDescription": {
                "updatedFields": {"region": "us", "region.x": 1, "a": 1},
                "removedFields": ["region"],
            },
        }
    )
    (found,) = FieldMapping([], [], {}, None, {"region": "eu"}).of([event])
    assert found.update_description == {"updatedFields": {"a": 1}, "removedFields": []}
    assert found.full_document == {"_id": 1, "a": {"b": 1}, "region": "eu"}
    (found,) = FieldMapping([], [], {}, Flattening()).of([event])
    assert (found.update_description, found.full_document) == (None, {"_id": 1, "a_b": 1})
