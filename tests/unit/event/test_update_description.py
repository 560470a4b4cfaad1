"""Update descriptions applied: one rule of the server a test.

That the rules are the server's is shown by the property test beside this one, in
``tests/integration/test_update_description.py``.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tailrace.event.update_description import apply_update


def described(
    updated: dict[str, Any] | None = None,
    removed: list[str] | None = None,
    truncated: list[dict[str, Any]] | None = None,
    exact: dict[str, list[str | int]] | None = None,
) -> dict[str, Any]:
    """An update description with the fields that servers from 6.0 send."""
    return {
        "updatedFields": updated or {},
        "removedFields": removed or [],
        "truncatedArrays": truncated or [],
        "disambiguatedPaths": exact or {},
    }


@pytest.mark.parametrize(
    ("before", "description", "after"),
    [
        pytest.param({"a": 1}, described({"a": 2, "b": 3}), {"a": 2, "b": 3}, id="top level"),
        pytest.param(
            {"a": {"b": 1, "c": 2}},
            described({"a.b": 5}, ["a.c"]),
            {"a": {"b": 5}},
            id="nested fields",
        ),
        pytest.param({}, described({"a.b.c": 1}), {"a": {"b": {"c": 1}}}, id="missing parents"),
        pytest.param({"x": 1}, described({}, ["a", "b.c", "x.y"]), {"x": None}, id="not there"),
        pytest.param({"a": [1, 2]}, described({"a.1": 9}), {"a": [1, 9]}, id="array element"),
        pytest.param({"a": [1]}, described({"a.3": 9}), {"a": [1, None, None, 9]}, id="beyond"),
        pytest.param({"a": {"1": 0}}, described({"a.1": 9}), {"a": {"1": 9}}, id="numeric name"),
        pytest.param({"a": []}, described({"a.0.b": 9}), {"a": [{"b": 9}]}, id="new element"),
        pytest.param(
            {"a": [{"b": [1, 2]}]},
            described({"a.0.b.0": 7, "a.0.c": 8}),
            {"a": [{"b": [7, 2], "c": 8}]},
            id="documents in arrays",
        ),
        pytest.param({"a": [{"b": 1}]}, described({}, ["a.0.b"]), {"a": [{}]}, id="removed below"),
        pytest.param({"a": [1, 2]}, described({}, ["a.0"]), {"a": [None, 2]}, id="unset element"),
        pytest.param(
            {"a": [1, 2, 3]},
            described({"a.0": 7}, [], [{"field": "a", "newSize": 2}]),
            {"a": [7, 2]},
            id="truncated and set",
        ),
        pytest.param(
            {"a": {"b": [1, 2]}},
            described(truncated=[{"field": "a.b", "newSize": 0}]),
            {"a": {"b": []}},
            id="truncated to nothing",
        ),
        pytest.param(
            {"a": [1]},
            described(truncated=[{"field": "a", "newSize": 3}]),
            {"a": [1, None, None]},
            id="too short for its new size",
        ),
        pytest.param(
            {"b": 1},
            described(truncated=[{"field": "a.c", "newSize": 1}]),
            {"b": 1},
            id="nothing to truncate",
        ),
        pytest.param(
            {"a.b": 1, "a": {"b": 2}},
            described({"a.b": 5}, exact={"a.b": ["a.b"]}),
            {"a.b": 5, "a": {"b": 2}},
            id="a name with a dot",
        ),
        pytest.param(
            {"a": {"0": {"$x": 1}}},
            described({"a.0.$x": 5}, exact={"a.0.$x": ["a", "0", "$x"]}),
            {"a": {"0": {"$x": 5}}},
            id="a numeric name and a dollar",
        ),
        pytest.param(
            {"a": [{"b.c": [1, 2, 3]}]},
            described(
                {"a.0.b.c.0": 5},
                truncated=[{"field": "a.0.b.c", "newSize": 1}],
                exact={"a.0.b.c.0": ["a", 0, "b.c", 0], "a.0.b.c": ["a", 0, "b.c"]},
            ),
            {"a": [{"b.c": [5]}]},
            id="indexes among exact names",
        ),
        pytest.param({"a": 5}, described({"a.b": 1}), {"a": None}, id="a value in the way"),
        pytest.param({"a": [1]}, described({"a.b": 1}), {"a": None}, id="an array in the way"),
        pytest.param({"a": [1]}, described({"a.01": 1}), {"a": None}, id="no canonical index"),
        pytest.param(
            {"a": 5},
            described(truncated=[{"field": "a", "newSize": 1}]),
            {"a": None},
            id="no array",
        ),
        pytest.param({"a": 1}, described(), {"a": 1}, id="nothing"),
        pytest.param({"a": 1}, {"updatedFields": {"a": None}}, {"a": None}, id="old servers"),
    ],
)
def test_the_document_after(
    before: dict[str, Any], description: dict[str, Any], after: dict[str, Any]
) -> None:
    """The change is made on a copy; the document before stays what it was."""
    kept = copy.deepcopy(before)
    result = apply_update(before, description)
    assert result == after
    assert result is not before
    assert before == kept


def test_fields_keep_their_places() -> None:
    """An updated field stays where it was, a new one comes last: BSON's order is content."""
    after = apply_update({"a": 1, "b": 2, "c": 3}, described({"d": 4, "b": 5}, ["a"]))
    assert list(after) == ["b", "c", "d"]


def test_what_does_not_change_is_shared() -> None:
    """A large document with a small change is not copied as a whole."""
    before = {"large": {"x": list(range(10))}, "n": {"m": 1}}
    after = apply_update(before, described({"n.m": 2}))
    assert after["large"] is before["large"]
    assert before["n"] == {"m": 1}
