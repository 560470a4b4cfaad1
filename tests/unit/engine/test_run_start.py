"""What a run begins with: who leaves when the server refuses where the stream was to begin."""

from typing import Any

import pytest

from tailrace.engine.course import Course
from tailrace.engine.position.start_position import StartPosition
from tailrace.engine.run_start import HandlerStart, leave_last
from tests.unit.engine.changes import checkpoint
from tests.unit.engine.watching import Destination


@pytest.mark.parametrize(
    ("gone", "leaves", "others"),
    [([], ["first"], True), (["first"], [], True), (["second", "third"], [], False)],
)
def test_only_handlers_that_are_still_together_leave(
    gone: list[str], leaves: list[str], others: bool
) -> None:
    """Some may have left while the stream was being opened."""
    nothing: Any = None
    starts, left = {"first": 2, "second": 5, "third": 7}, list[str]()
    routed = [Destination(name).routed() for name in starts]
    begun = []
    for n, each in zip(starts.values(), routed, strict=True):
        at = checkpoint(n).position
        begun.append(HandlerStart(each, None, StartPosition(at.start_point, at)))
    course = Course(
        nothing,
        [each for each in routed if each.name not in gone],
        nothing,
        nothing,
        lambda of, error, former: left.append(of.name),
    )
    assert leave_last(course, begun) is others
    assert left == leaves
    assert course.names == [name for name in starts if name not in {*gone, *leaves}]
