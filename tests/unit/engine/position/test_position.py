"""Which of two positions is before the other."""

from dataclasses import replace

from tailrace.model import PositionKind
from tailrace.model.position import earliest
from tests.unit.engine.changes import checkpoint


def test_a_position_at_a_time_is_before_one_at_a_change_of_that_time() -> None:
    """A stream that begins with the change lacks the one before it: a drop and its invalidate."""
    at_change = checkpoint(5).position
    at_time = replace(at_change, kind=PositionKind.IDLE, event_token=None, high_water=None)
    assert at_time.is_before(at_change)
    assert not at_change.is_before(at_time)
    assert not at_time.is_before(at_time)
    assert earliest([at_change, at_time, at_change], lambda each: each) is at_time
