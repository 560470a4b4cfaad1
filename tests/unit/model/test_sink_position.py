"""The positions that a destination may report."""

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Binary, Int64, Regex
from bson.timestamp import Timestamp

from tailrace.errors import InvalidPosition
from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken, SinkPosition

ID = {"_data": "8265A0B0C000000001"}
TOKEN = ResumeToken.of(ID)
TIME = Timestamp(5, 1)


@pytest.mark.parametrize("token", [ID, TOKEN, TOKEN.wire], ids=["id", "token", "raw id"])
def test_an_events_id_is_as_good_as_its_token(token: Any) -> None:
    assert SinkPosition(token, TIME) == SinkPosition(TOKEN, TIME)
    assert SinkPosition.of(token) == SinkPosition(TOKEN)
    assert SinkPosition(token).time == TOKEN.cluster_time


def test_what_is_a_position_already_stays_it_and_none_is_none() -> None:
    position = SinkPosition(TOKEN, TIME, "f")
    assert SinkPosition.of(position) is position
    assert SinkPosition.of(None) is None


@pytest.mark.parametrize("said", ["8265", {}, 5, b"8265", (ID, TIME), [ID], {"_data": object()}])
def test_anything_else_is_no_position(said: Any) -> None:
    with pytest.raises(InvalidPosition):
        SinkPosition.of(said)
    with pytest.raises(InvalidPosition):
        SinkPosition(said, TIME)


@pytest.mark.parametrize("time", [datetime(2026, 1, 1, tzinfo=UTC), (5, 1), 5, "5"])
def test_a_time_is_a_timestamp(time: Any) -> None:
    with pytest.raises(InvalidPosition, match=r"bson\.Timestamp"):
        SinkPosition(ID, time)


def event(identity: dict[str, Any], time: int) -> ChangeEvent:
    return ChangeEvent.from_document({"_id": identity, "clusterTime": Timestamp(time, 1)})


def change(number: int) -> ChangeEvent:
    return event({"_data": f"82{number:02x}"}, number)


def row(collection: int, document: Any, time: int, snapshot: str = "s1") -> ChangeEvent:
    identity = {"snapshot": snapshot, "collection": Binary(bytes([collection] * 16), 4)}
    return event({**identity, "_id": document}, time)


def barrier(name: str, time: int) -> ChangeEvent:
    return event({"snapshot": "s1", "event": name}, time)


BEFORE = SinkPosition.after([change(1), barrier("snapshotBegin", 2), row(1, Int64(5), 3)])


@pytest.mark.parametrize("found", [5, Int64(5), b"x\0", "\0\0", {"_id": 1}, Regex("a"), None, 1.5])
def test_a_position_keeps_account_of_rows_and_changes(found: Any) -> None:
    """For any ``_id`` of a row; and a stored position is read back unchanged."""
    events = [row(2, found, 4), change(5), row(1, found, 6)]
    position = SinkPosition.after(events, BEFORE)
    assert (position.token, position.cluster_time) == (change(5).token, Timestamp(5, 1))
    assert position.rows is not None
    last = {uuid: bson.decode(each.raw)["_id"] for uuid, each in position.rows.last.items()}
    assert last == {"01" * 16: found, "02" * 16: found}
    assert all(map(position.is_at, events))
    others = [change(1), row(1, "another", 7), row(1, found, 6, "s2"), barrier("snapshotEnd", 8)]
    assert not any(map(position.is_at, others))
    assert SinkPosition.from_text(position.to_text()) == position


def test_the_end_of_a_snapshot_stands_for_all_its_rows() -> None:
    end = SinkPosition.after([barrier("snapshotEnd", 4)], BEFORE)
    assert end.rows is not None
    assert (end.rows.ended, end.rows.last) == (True, {})
    assert end.is_at(barrier("snapshotEnd", 4))
    assert SinkPosition.from_text(end.to_text()) == end
    later = SinkPosition.after([row(1, 1, 5, "s2")], end)
    assert later.rows is not None
    assert (later.rows.id, later.rows.ended, len(later.rows.last)) == ("s2", False, 1)


def test_rows_before_the_first_change_have_no_token() -> None:
    begun = SinkPosition.after([barrier("snapshotBegin", 2)])
    assert begun.is_at(barrier("snapshotBegin", 2))
    assert not begun.is_at(barrier("snapshotEnd", 3))
    assert SinkPosition.from_text(begun.to_text()) == begun
    assert SinkPosition.after([row(1, 1, 3)], begun).time is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"token": 5}', "[" * 10_000])
def test_another_text_is_no_position(text: str) -> None:
    with pytest.raises(InvalidPosition):
        SinkPosition.from_text(text)


@pytest.mark.parametrize("of", [row(1, 1, 1), barrier("snapshotBegin", 1)])
def test_a_rows_id_alone_is_no_position(of: ChangeEvent) -> None:
    with pytest.raises(InvalidPosition, match=r"SinkPosition\.after"):
        SinkPosition.of(of.id)
