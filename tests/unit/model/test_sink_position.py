"""What a destination may say of its position."""

from datetime import UTC, datetime
from typing import Any

import pytest
from bson.timestamp import Timestamp

from tailrace.errors import InvalidPosition
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
