"""The watermark: behind everything that is handled, never past what is not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.engine.position.watermark import InFlight, Mark, Place
from tailrace.event import Batch
from tailrace.model import CheckpointKind
from tests.unit.engine.changes import (
    NOTHING,
    Document,
    admit,
    batch,
    change,
    invalidate,
    time,
    token,
)

START = Mark(CheckpointKind.EVENT, token(0), token(0), time(0))


@dataclass
class Reply:
    """A reply of the stream: ``events`` events, then perhaps a post-batch token of its own."""

    events: int
    post_batch: bool
    invalidates: bool


replies = st.lists(
    st.builds(
        Reply,
        events=st.one_of(st.just(0), st.integers(1, 8), st.integers(0, 200)),
        post_batch=st.booleans(),
        invalidates=st.booleans(),
    ),
    max_size=12,
)


def reply(first: int, of: Reply) -> tuple[Batch, int]:
    """The batch whose first event is ``first``, and the number that its token stands for."""
    documents = [change(first + n) for n in range(of.events)]
    if of.invalidates and documents:
        documents[-1] = invalidate(first + of.events - 1)
    behind = first + of.events - 1
    if of.post_batch or not documents:
        behind += 1
        return batch(documents, token(behind)), behind
    return batch(documents), behind


def at(mark: Mark) -> int:
    """The number of the position that the mark resumes from."""
    position = mark.high_water
    assert position is not None
    assert position.cluster_time is not None
    return position.cluster_time.time - time(0).time


@settings(deadline=None, max_examples=150)
@given(replies, st.integers(0, 4), st.data())
def test_the_mark_is_behind_the_longest_finished_prefix(
    plan: list[Reply], handlers: int, data: st.DataObject
) -> None:
    """Whatever finishes in whatever order, the mark is exactly behind the finished prefix."""
    line = InFlight(START)
    pending: list[Place] = []
    batches: list[tuple[Batch, int, list[Place]]] = []
    first = 1
    for of in plan:
        whole, behind = reply(first, of)
        places = admit(line, whole, handlers)
        assert (places != []) == bool(handlers and of.events)
        batches.append((whole, behind, places))
        pending += places * handlers
        first = behind + 1
        _check(line, batches)
        early = data.draw(st.booleans(), label="finish one between replies")
        if pending and early:
            line.finish(pending.pop(data.draw(st.integers(0, len(pending) - 1))))
            _check(line, batches)
    # A handler that commits has a place twice: it takes it in, and is done with it later.
    committing = [data.draw(st.booleans(), label="commits") for _ in pending]
    steps = [*enumerate(pending), *(step for step in enumerate(pending) if committing[step[0]])]
    inside: set[int] = set()
    for handler, place in data.draw(st.permutations(steps)):
        before = line.size
        if not committing[handler]:
            freed = line.finish(place)
        elif handler in inside:
            freed = line.commit(place)
        else:
            inside.add(handler)
            freed = line.take(place)
        assert line.size == before - freed
        _check(line, batches)
    assert line.empty
    assert (line.events, line.size) == (0, 0)
    assert at(line.mark) == (batches[-1][1] if batches else 0)


def _check(line: InFlight, batches: list[tuple[Batch, int, list[Place]]]) -> None:
    expected, events, size, blocked = 0, 0, 0, False
    held = False  # behind what somebody needs whole, nothing is given up
    for whole, behind, places in batches:
        for place, chunk in zip(places, whole.chunks(), strict=False):
            blocked = blocked or place.unfinished > 0
            if blocked:
                events += len(chunk)
                held = held or place.unfinished > place.taken
                needed = held if place.unfinished else place.chunk is not None
                assert needed is (place.chunk is not None)
                size += chunk.size if needed else 0
            else:
                last = chunk.last().token
                assert last is not None
                assert last.cluster_time is not None
                expected = last.cluster_time.time - time(0).time
        if not blocked:
            expected = behind
        if not places and blocked and len(whole):
            raise AssertionError("a reply with events and handlers has places")
    assert at(line.mark) == expected
    assert (line.events, line.size) == (events, size)
    assert line.mark.cluster_time is not None
    # A post-batch token may be ahead of the event's time, never the other way round.
    assert line.mark.cluster_time.time <= time(expected).time


def test_what_every_handler_has_taken_in_needs_no_bytes_and_moves_nothing() -> None:
    line = InFlight(START)
    (place,) = admit(line, batch([change(1)]), 2)
    size = line.size
    assert line.take(place) == 0
    assert line.finish(place) == size
    assert (place.chunk, line.size, line.events, line.mark) == (None, 0, 1, START)
    assert line.commit(place) == 0
    assert line.mark == Mark(CheckpointKind.EVENT, token(1), token(1), time(1))
    assert (line.empty, line.events) == (True, 0)


def test_what_a_handler_holds_counts_until_it_is_given_up() -> None:
    line = InFlight(START)
    (place,) = admit(line, batch([change(1)]), 1)
    size = line.size
    assert line.take(place) == size
    assert line.hold("lake", 10) == -10
    assert (line.size, line.hold("lake", 30), line.size) == (10, -20, 30)
    assert (line.hold("lake", 0), line.size) == (30, 0)


def test_a_bookmark_does_not_overtake_unfinished_work() -> None:
    line = InFlight(START)
    (place,) = admit(line, batch([change(1)]), 1)
    assert admit(line, batch([], token(5)), 1) == []
    assert line.mark == START
    line.finish(place)
    assert line.mark == Mark(CheckpointKind.IDLE, token(1), token(5), time(5))


def test_a_place_of_several_handlers_is_finished_by_the_last() -> None:
    line = InFlight(START)
    (place,) = admit(line, batch([change(1)]), 3)
    assert line.finish(place) == 0
    assert line.finish(place) == 0
    assert line.mark == START
    assert line.finish(place) > 0
    assert line.mark == Mark(CheckpointKind.EVENT, token(1), token(1), time(1))


def test_the_post_batch_token_counts_only_behind_the_whole_reply() -> None:
    line = InFlight(START)
    first, second = admit(line, batch([change(n) for n in range(1, 101)], token(200)), 1)
    line.finish(first)
    assert line.mark == Mark(CheckpointKind.EVENT, token(64), token(64), time(64))
    line.finish(second)
    assert line.mark == Mark(CheckpointKind.EVENT, token(100), token(200), time(100))


def test_without_handlers_every_reply_is_born_finished() -> None:
    line = InFlight(START)
    assert admit(line, batch([change(n) for n in range(1, 101)]), 0) == []
    assert line.mark.high_water == token(100)
    assert (line.empty, line.events, line.size) == (True, 0, 0)


def test_an_idle_token_before_the_mark_does_not_move_it_back() -> None:
    """An empty reply may stand earlier than a requested start (field notes, 16)."""
    line = InFlight(Mark(CheckpointKind.EVENT, token(9), token(9), time(9)))
    admit(line, batch([], token(4)), 1)
    assert line.mark.high_water == token(9)
    admit(line, batch([], token(10)), 1)
    assert line.mark == Mark(CheckpointKind.IDLE, token(9), token(10), time(10))


def test_the_same_idle_token_changes_nothing() -> None:
    """So an idle scope is not saved again and again, and an event's mark stays an event's."""
    line = InFlight(START)
    admit(line, batch([], token(0)), 1)
    assert line.mark == START


def test_an_invalidate_is_marked_as_such() -> None:
    line = InFlight(START)
    (place,) = admit(line, batch([change(1), invalidate(2)]), 1)
    line.finish(place)
    assert line.mark == Mark(CheckpointKind.INVALIDATE, token(2), token(2), time(2))


@pytest.mark.parametrize("events", [[], [change(3)], [{"_id": {"_data": "7"}}]], ids=str)
def test_the_end_of_a_stream_is_marked_as_such_whatever_its_last_event_says(
    events: list[Document],
) -> None:
    """A pipeline may have filtered the invalidate away, or made something else of it."""
    for before in (START, Mark(CheckpointKind.EVENT, token(7), token(7), time(7))):
        line = InFlight(before)
        whole = batch(events, token(7))
        for place in line.admit(whole, whole.chunks(), 1, invalidated=True):
            line.finish(place)
        assert line.mark.kind is CheckpointKind.INVALIDATE
        assert line.mark.high_water == token(7)


def test_behind_an_invalidate_idle_tokens_move_the_mark_and_keep_its_kind() -> None:
    """Only ``startAfter`` goes on there, and the invalidate's own token would age out."""
    line = InFlight(Mark(CheckpointKind.INVALIDATE, token(2), token(2), time(2)))
    admit(line, batch([], token(2)), 1)
    assert line.mark == Mark(CheckpointKind.INVALIDATE, token(2), token(2), time(2))
    admit(line, batch([], token(7)), 1)
    assert line.mark == Mark(CheckpointKind.INVALIDATE, token(2), token(7), time(7))
    (place,) = admit(line, batch([change(8)]), 1)
    line.finish(place)
    assert line.mark == Mark(CheckpointKind.EVENT, token(8), token(8), time(8))


class TestOperationTime:
    """Servers before 4.0.7 send no post-batch token: the first reply's time is all there is."""

    def test_is_the_mark_where_nothing_else_is_known(self) -> None:
        line = InFlight(NOTHING)
        admit(line, batch([], None, time(3)), 1)
        assert line.mark == Mark(CheckpointKind.IDLE, None, None, time(3))

    def test_counts_once(self) -> None:
        line = InFlight(NOTHING)
        admit(line, batch([], None, time(3)), 1)
        admit(line, batch([], None, time(9)), 1)
        assert line.mark.cluster_time == time(3)

    def test_counts_once_even_while_it_waits_in_line(self) -> None:
        line = InFlight(NOTHING)
        (place,) = admit(line, batch([change(1)]), 1)
        admit(line, batch([], None, time(9)), 1)
        line.finish(place)
        assert line.mark == Mark(CheckpointKind.EVENT, token(1), token(1), time(1))

    def test_does_not_replace_a_token(self) -> None:
        line = InFlight(START)
        admit(line, batch([], None, time(9)), 1)
        assert line.mark == START

    def test_that_is_missing_moves_nothing(self) -> None:
        line = InFlight(NOTHING)
        admit(line, batch([]), 1)
        assert line.mark == NOTHING


def test_an_event_without_a_time_takes_that_of_its_token() -> None:
    document = change(5)
    del document["clusterTime"]
    line = InFlight(NOTHING)
    (place,) = admit(line, batch([document]), 1)
    line.finish(place)
    assert line.mark.cluster_time == time(5)
