"""Where events are converted."""

from collections.abc import Sequence
from threading import get_ident

import pytest

from tailrace.destination import converted
from tailrace.event import ChangeEvent


def event(size: int) -> ChangeEvent:
    return ChangeEvent.from_document({"_id": {"_data": "82"}, "fullDocument": {"a": "x" * size}})


@pytest.mark.parametrize(
    ("events", "in_a_thread"),
    [
        ([event(10)] * 20, False),
        ([event(10)] * 200, True),
        ([event(2**20)], True),
        ([event(2**16)] * 6, True),
    ],
    ids=["few", "many", "a large one", "several large ones"],
)
async def test_many_and_large_events_leave_the_event_loop_to_others(
    events: Sequence[ChangeEvent], in_a_thread: bool
) -> None:
    threads = list[int]()

    def convert(events: Sequence[ChangeEvent]) -> int:
        threads.append(get_ident())
        return len(events)

    assert await converted(convert, events) == len(events)
    assert (threads != [get_ident()]) == in_a_thread
