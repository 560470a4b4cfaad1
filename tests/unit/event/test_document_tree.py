"""Documents as trees: each value keeps its type and its bytes."""

from typing import Any

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, ObjectId
from hypothesis import example, given

from tailrace.event.bson import encoded
from tailrace.event.document_tree import to_bson, tree_of
from tailrace.event.extended_json import to_json
from tailrace.event.update_description import updated_bson
from tests.unit.event.documents import documents, quick

ID = ObjectId("65f0a1b2c3d4e5f6a7b8c9d0")
OF_NO_PYTHON_TYPE = [
    b"\x06undefined\0",
    b"\x0esymbol\0\x02\0\0\0s\0",
    b"\x0cpointer\0\x05\0\0\0db.c\0" + ID.binary,
    b"\x0fcode\0\x12\0\0\0\x02\0\0\0x\0" + encoded(b"\x06z\0"),
]
LOOK_ALIKES: list[Any] = [
    {"$date": "soon"},
    {"$date": "2026-01-01T00:00:00Z"},
    {"$date": 5},
    {"$date": {"$numberLong": "x"}},
    {"$oid": "65f0"},
    {"$oid": "65F0A1B2C3D4E5F6A7B8C9D0"},
    {"$oid": ID},
    {"$uuid": "00000000-0000-0000-0000-000000000000"},
    {"$numberInt": "05"},
    {"$numberInt": "2147483648"},
    {"$numberInt": 5},
    {"$numberLong": "9223372036854775808"},
    {"$numberDouble": "1"},
    {"$numberDouble": "nan"},
    {"$numberDecimal": "01"},
    {"$numberDecimal": "much"},
    {"$numberDecimal": 1.5},
    {"$binary": "AAAA"},
    {"$binary": {"base64": "AA", "subType": "00"}},
    {"$binary": {"base64": "AA==", "subType": "0"}},
    {"$binary": {"base64": "AA==", "subType": "00", "more": 1}},
    {"$binary": "AA==", "$type": "00"},
    {"$regularExpression": {"pattern": "a"}},
    {"$regularExpression": {"pattern": "a", "options": "xi"}},
    {"$regularExpression": {"pattern": "a\0", "options": ""}},
    {"$regex": "a", "$options": "i"},
    {"$timestamp": {"t": 1, "i": 2}},
    {"$timestamp": []},
    {"$symbol": 1},
    {"$code": 1},
    {"$code": "x", "$scope": 1},
    {"$scope": {}, "$code": "x"},
    {"$minKey": 1},
    {"$minKey": True},
    {"$maxKey": "1"},
    {"$undefined": 1},
    {"$dbPointer": {"$ref": "c", "$id": 1}},
    {"$dbPointer": None},
    {"$id": 1, "$ref": "c"},
    {"$oid": "65f0a1b2c3d4e5f6a7b8c9d0", "more": 1},
]


def forms(raw: bytes) -> list[bytes | str]:
    return [raw, to_json(raw, canonical=True)]


@quick
@given(documents)
@example({"": Code("x"), "in": Code("x", {"y": 1})})
def test_a_document_comes_back_with_its_bytes(document: dict[str, Any]) -> None:
    raw = bson.encode(document)
    assert [to_bson(tree_of(form)) for form in forms(raw)] == [raw, raw]


@pytest.mark.parametrize("element", OF_NO_PYTHON_TYPE)
def test_a_value_of_a_type_that_python_lacks_comes_back(element: bytes) -> None:
    raw = encoded(b"\x03in\0" + encoded(element))
    assert [to_bson(tree_of(form)) for form in forms(raw)] == [raw, raw]


@pytest.mark.parametrize("value", LOOK_ALIKES, ids=str)
def test_an_applications_document_with_a_name_of_extended_json_stays_one(value: Any) -> None:
    raw = bson.encode({"": value, "in": [value], "after": 1})
    assert [to_bson(tree_of(form)) for form in forms(raw)] == [raw, raw]


def test_text_that_is_not_utf_8_keeps_its_bytes() -> None:
    raw = encoded(b"\x02\xff\0\x03\0\0\0a\xfe\0")
    assert to_bson(tree_of(raw)) == raw


@pytest.mark.parametrize("text", ["[]", "1", "{", '{"$oid":"' + 24 * "0" + '"}'])
def test_text_that_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"text of a document|Expecting"):
        tree_of(text)


def test_an_update_keeps_the_types_of_all_values() -> None:
    before = {
        "_id": 1,
        "at": {"$date": "soon"},
        "list": [Int64(1), 2, Binary(b"", 2)],
        "a": {"b": 1},
    }
    description = {
        "updatedFields": {"a.c.d": Decimal128("1.0"), "new": {"$oid": "x"}, "list.0": 1.0},
        "removedFields": ["a.b"],
        "truncatedArrays": [{"field": "list", "newSize": 2}],
        "disambiguatedPaths": {"list.0": ["list", 0]},
    }
    after = {"_id": 1, "at": {"$date": "soon"}, "list": [1.0, 2]}
    after |= {"a": {"c": {"d": Decimal128("1.0")}}, "new": {"$oid": "x"}}
    for document in forms(bson.encode(before)):
        for change in forms(bson.encode(description)):
            assert updated_bson(document, change) == bson.encode(after)
