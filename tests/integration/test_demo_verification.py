"""The demo's proof must be able to fail: each way in which events can be wrong is found."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.int64 import Int64

from tailrace.demo.verification import compare, replay
from tailrace.event.extended_json import to_json

SHOP = {"db": "shop", "coll": "orders"}


def event(token: int, operation: str, key: Any = 1, **fields: Any) -> str:
    """A line of the events file."""
    document: dict[str, Any] = {
        "_id": {"_data": f"{token:04d}"},
        "operationType": operation,
        "ns": SHOP,
        "documentKey": {"_id": key},
        **fields,
    }
    return to_json(bson.encode(document), canonical=True)


def update(token: int, key: Any = 1, removed: tuple[str, ...] = (), **updated: Any) -> str:
    """An update event."""
    description = {"updatedFields": updated, "removedFields": list(removed)}
    return event(token, "update", key, updateDescription=description)


LINES = [
    event(1, "insert", fullDocument={"_id": 1, "n": Int64(1), "tags": ["a"]}),
    event(2, "insert", Int64(2), fullDocument={"_id": Int64(2), "n": 0.5}),
    update(3, n=Int64(2)),
    update(4, n=Int64(3)),
    event(5, "replace", Int64(2), fullDocument={"_id": Int64(2), "m": float("nan")}),
    event(6, "insert", 3, fullDocument={"_id": 3}),
    event(7, "delete", 3),
]
SOURCE = {
    "shop.orders": [
        bson.encode({"_id": 1, "n": Int64(3), "tags": ["a"]}),
        bson.encode({"_id": Int64(2), "m": float("nan")}),
    ],
    "shop.empty": [],
}


def problems(lines: list[str]) -> list[str]:
    """All that the proof finds wrong with the lines."""
    played = replay(lines)
    return [*played.unfounded, *compare(played.collections, SOURCE)]


def test_all_events_in_order_give_the_source() -> None:
    """The ground for the other tests."""
    assert problems(LINES) == []
    assert replay(LINES).operations == {"insert": 3, "update": 2, "replace": 1, "delete": 1}


@pytest.mark.parametrize("lost", [0, 1, 3, 4, 5, 6])
def test_a_lost_line_is_found(lost: int) -> None:
    """Line 2 is not among them: the update after it sets the same field again."""
    assert problems(LINES[:lost] + LINES[lost + 1 :])


@pytest.mark.parametrize("first", [0, 2, 5])
def test_two_lines_in_the_wrong_order_are_found(first: int) -> None:
    """Neighbours of one document, swapped."""
    second = first + 1 if first else 2
    lines = LINES.copy()
    lines[first], lines[second] = lines[second], lines[first]
    assert problems(lines)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"$numberLong":"3"}', '{"$numberInt":"3"}'),
        ('{"$numberLong":"3"}', '{"$numberDouble":"3.0"}'),
        ('{"$numberDouble":"NaN"}', "null"),
        ('"tags":["a"]', '"tags":{"0":"a"}'),
    ],
)
def test_a_changed_type_is_found(old: str, new: str) -> None:
    """The same number in another width is not the same value."""
    lines = [line.replace(old, new) for line in LINES]
    assert lines != LINES
    assert len(problems(lines)) == 1


def test_an_event_that_comes_again_is_counted_and_changes_nothing() -> None:
    """At least once: what is handled again after a crash is no difference."""
    again = [*LINES[:4], *LINES[1:4], *LINES[4:]]
    assert replay(again).duplicates == 3
    assert problems(again) == []


def test_an_update_of_an_unknown_document_is_told_and_uses_the_full_document() -> None:
    """The proof goes on as well as it can, and does not hide that something is missing."""
    lines = [event(1, "update", fullDocument={"_id": 1, "n": 1}, updateDescription={})]
    played = replay(lines)
    assert len(played.unfounded) == 1
    assert compare(played.collections, {"shop.orders": [bson.encode({"_id": 1, "n": 1})]}) == []


def test_collections_move_with_a_rename_and_go_with_a_drop() -> None:
    """State follows the namespace; dropping the database takes all of it."""
    moved = {"db": "shop", "coll": "archive"}
    renamed = [*LINES, event(8, "rename", to=moved)]
    assert list(replay(renamed).collections) == ["shop.archive"]
    assert replay([*renamed, event(9, "drop", ns=moved)]).collections == {}
    gone = [*renamed, event(9, "dropDatabase", ns={"db": "shop"}), event(10, "invalidate")]
    assert replay(gone).collections == {}


@pytest.mark.parametrize("line", ["", "{", "[]", "{}", '{"_id":1}', LINES[0][:-5]])
def test_a_line_that_is_no_event_is_named(line: str) -> None:
    """A torn line is an error of the file, not of the documents."""
    with pytest.raises(ValueError, match="line 2 is not a change event"):
        replay([LINES[0], line])
