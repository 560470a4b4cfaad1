"""Up to where a handler has everything, as verifications see it."""

from types import SimpleNamespace as Named
from typing import Any

import pytest
from bson.timestamp import Timestamp

from tailrace.engine import WatcherState
from tailrace.model import Position, ResumeToken
from tailrace.model.position import PositionKind
from tailrace.testing.tokens import event_token, high_water_token
from tailrace.verify.followed import FollowedHandler

TIME = Timestamp(100, 5)
IDLE = ResumeToken.of(high_water_token(TIME))
EVENT = ResumeToken.of(event_token(TIME, 0, "a.b", 1))


def reached(position: Position) -> Timestamp:
    status = Named(state=WatcherState.STREAMING, reached=lambda _: (position, None))
    status.saved = lambda _: None
    watcher: Any = Named(status=status, claim=Named(epoch=1), status_of=lambda _: status)
    return FollowedHandler("orders", "audit", lambda _: watcher).reached().time


@pytest.mark.parametrize(
    ("kind", "token", "before"),
    [
        (PositionKind.IDLE, None, True),
        (PositionKind.IDLE, IDLE, True),
        (PositionKind.EVENT, EVENT, False),
    ],
)
def test_a_position_without_a_change_is_before_its_time(
    kind: PositionKind, token: ResumeToken | None, *, before: bool
) -> None:
    """That of a new stream is one that the server has not reached while nothing is written: no
    document can be read as of it."""
    position = Position(kind, token, token, TIME)
    assert reached(position) == (Timestamp(100, 4) if before else TIME)


def test_nor_is_the_first_one_of_a_second_of_that_second() -> None:
    position = Position(PositionKind.IDLE, None, None, Timestamp(100, 0))
    assert reached(position) < Timestamp(100, 0)


@pytest.mark.parametrize(
    ("is_log", "from_beginning", "busy"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
def test_the_changes_of_a_log_do_not_count(
    *, is_log: bool, from_beginning: bool, busy: bool
) -> None:
    """It is read as a whole: small steps beside changes would read it again and again."""
    handler = Named(is_log=is_log, from_beginning=from_beginning)
    routed = Named(name="audit", handler=handler)
    status = Named(state=WatcherState.STREAMING, stream=Named(is_busy=True))
    plan = Named(routed=[routed])
    watcher: Any = Named(status=status, claim=Named(epoch=1), plan=plan, status_of=lambda _: status)
    assert FollowedHandler("orders", "audit", lambda _: watcher).is_busy() == busy
