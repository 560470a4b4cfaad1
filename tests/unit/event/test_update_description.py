"""Update descriptions applied: one rule of the server a test.

That the rules are the server's is shown by the property test beside this one, in
``tests/integration/test_update_description.py``.
"""

import copy
from typing import Any

import pytest

from tailrace.event.update_description import apply_update


def described(
    updated: dict[str, Any] | None = None,
    removed: tuple[str, ...] = (),
    truncated: dict[str, int] | None = None,
    exact: dict[str, list[str | int]] | None = None,
) -> dict[str, Any]:
    """An update description with the fields that servers from 6.0 send."""
    sizes = (truncated or {}).items()
    return {
        "updatedFields": updated or {},
        "removedFields": list(removed),
        "truncatedArrays": [{"field": field, "newSize": size} for field, size in sizes],
        "disambiguatedPaths": exact or {},
    }


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "top level": ({"a": 1}, described({"a": 2, "b": 3}), {"a": 2, "b": 3}),
    "nested": ({"a": {"b": 1, "c": 2}}, described({"a.b": 5}, ("a.c",)), {"a": {"b": 5}}),
    "missing parents": ({}, described({"a.b.c": 1}), {"a": {"b": {"c": 1}}}),
    "not there": ({"x": 1}, described({}, ("a", "b.c", "x.y")), {"x": None}),
    "array element": ({"a": [1, 2]}, described({"a.1": 9}), {"a": [1, 9]}),
    "beyond": ({"a": [1]}, described({"a.3": 9}), {"a": [1, None, None, 9]}),
    "numeric name": ({"a": {"1": 0}}, described({"a.1": 9}), {"a": {"1": 9}}),
    "new element": ({"a": []}, described({"a.0.b": 9}), {"a": [{"b": 9}]}),
    "documents in arrays": (
        {"a": [{"b": [1, 2]}]},
        described({"a.0.b.0": 7, "a.0.c": 8}),
        {"a": [{"b": [7, 2], "c": 8}]},
    ),
    "removed below": ({"a": [{"b": 1}]}, described({}, ("a.0.b",)), {"a": [{}]}),
    "unset element": ({"a": [1, 2]}, described({}, ("a.0",)), {"a": [None, 2]}),
    "truncated and set": ({"a": [1, 2, 3]}, described({"a.0": 7}, (), {"a": 2}), {"a": [7, 2]}),
    "emptied": ({"a": {"b": [1, 2]}}, described(truncated={"a.b": 0}), {"a": {"b": []}}),
    "short for its size": ({"a": [1]}, described(truncated={"a": 3}), {"a": [1, None, None]}),
    "nothing to truncate": ({"b": 1}, described(truncated={"a.c": 1}), {"b": 1}),
    "a name with a dot": (
        {"a.b": 1, "a": {"b": 2}},
        described({"a.b": 5}, exact={"a.b": ["a.b"]}),
        {"a.b": 5, "a": {"b": 2}},
    ),
    "a numeric name and a dollar": (
        {"a": {"0": {"$x": 1}}},
        described({"a.0.$x": 5}, exact={"a.0.$x": ["a", "0", "$x"]}),
        {"a": {"0": {"$x": 5}}},
    ),
    "indexes among exact names": (
        {"a": [{"b.c": [1, 2, 3]}]},
        described(
            {"a.0.b.c.0": 5},
            truncated={"a.0.b.c": 1},
            exact={"a.0.b.c.0": ["a", 0, "b.c", 0], "a.0.b.c": ["a", 0, "b.c"]},
        ),
        {"a": [{"b.c": [5]}]},
    ),
    "a value in the way": ({"a": 5}, described({"a.b": 1}), {"a": None}),
    "an array in the way": ({"a": [1]}, described({"a.b": 1}), {"a": None}),
    "no canonical index": ({"a": [1]}, described({"a.01": 1}), {"a": None}),
    "no array": ({"a": 5}, described(truncated={"a": 1}), {"a": None}),
    "nothing": ({"a": 1}, described(), {"a": 1}),
    "old servers": ({"a": 1}, {"updatedFields": {"a": None}}, {"a": None}),
}


@pytest.mark.parametrize(("before", "description", "after"), CHANGES.values(), ids=CHANGES)
def test_the_document_after(
    before: dict[str, Any], description: dict[str, Any], after: dict[str, Any]
) -> None:
    """The change is made on a copy; the document before stays what it was."""
    kept = copy.deepcopy(before)
    result = apply_update(before, description)
    assert result == after
    assert result is not before
    assert before == kept


def test_fields_keep_their_places_and_what_does_not_change_is_shared() -> None:
    """BSON's order is content: a new field comes last."""
    before = {"a": 1, "b": 2, "large": {"x": [1]}}
    after = apply_update(before, described({"d": 4, "b": 5}, ("a",)))
    assert list(after) == ["b", "large", "d"]
    assert after["large"] is before["large"]
