"""The demo's proof must be able to fail: it finds each way in which events can be wrong."""

from typing import Any

import bson
import pytest
from bson.int64 import Int64

from tailrace.demo.verification import replay
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


def update(token: int, **updated: Any) -> str:
    return event(token, "update", updateDescription={"updatedFields": updated})


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
    return replay(lines).differences(SOURCE)


def test_all_events_in_order_give_the_source() -> None:
    """A repetition changes nothing, and is counted."""
    assert problems(LINES) == []
    assert replay(LINES).operations == {"insert": 3, "update": 2, "replace": 1, "delete": 1}
    again = [*LINES[:4], *LINES[1:4], *LINES[4:]]
    assert (problems(again), replay(again).duplicates) == ([], 3)


def test_a_lost_line_and_a_wrong_order_are_found() -> None:
    """A lost line 2 cannot be: the update after it sets the same field again."""
    for lost in (0, 1, 3, 4, 5, 6):
        assert problems(LINES[:lost] + LINES[lost + 1 :]), lost
    for first, second in (0, 2), (2, 3), (5, 6):  # neighbours of one document
        lines = LINES.copy()
        lines[first], lines[second] = lines[second], lines[first]
        assert problems(lines), first


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"$numberLong":"3"}', '{"$numberInt":"3"}'),
        ('{"$numberDouble":"NaN"}', "null"),
        ('"tags":["a"]', '"tags":{"0":"a"}'),
    ],
)
def test_a_changed_type_is_found(old: str, new: str) -> None:
    assert len(problems([line.replace(old, new) for line in LINES])) == 1


def test_an_update_of_an_unknown_document_is_reported_and_uses_the_full_document() -> None:
    lines = [event(1, "update", fullDocument={"_id": 1, "n": 1}, updateDescription={})]
    played = replay(lines)
    assert len(played.unfounded) == 1
    source = {"shop.orders": [bson.encode({"_id": 1, "n": 1})]}
    assert played.differences(source) == played.unfounded


def test_collections_move_with_a_rename_and_go_with_a_drop() -> None:
    moved = {"db": "shop", "coll": "archive"}
    renamed = [*LINES, event(8, "rename", to=moved)]
    assert list(replay(renamed).collections) == ["shop.archive"]
    assert replay([*renamed, event(9, "drop", ns=moved)]).collections == {}
    gone = [*renamed, event(9, "dropDatabase", ns={"db": "shop"}), event(10, "invalidate")]
    assert replay(gone).collections == {}


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"_id":1}', LINES[0][:-5]])
def test_a_line_that_is_no_event_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 is not a change event"):
        replay([LINES[0], line])
