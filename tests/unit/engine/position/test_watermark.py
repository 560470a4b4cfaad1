"""The watermark: after everything that is handled, never past an unhandled event."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.engine.position.watermark import Place, Watermark
from tailrace.event import RawBatch
from tailrace.model import Position, PositionKind, SnapshotProgress
from tailrace.model.snapshot import SnapshotMode
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

START = Position(PositionKind.EVENT, token(0), token(0), time(0))


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


def reply(first: int, of: Reply) -> tuple[RawBatch, int]:
    """The batch whose first event is ``first``, and the number of its token."""
    documents = [change(first + n) for n in range(of.events)]
    if of.invalidates and documents:
        documents[-1] = invalidate(first + of.events - 1)
    behind = first + of.events - 1
    if of.post_batch or not documents:
        behind += 1
        return batch(documents, token(behind)), behind
    return batch(documents), behind


def at(position: Position) -> int:
    """The number of the token from which the position resumes."""
    token = position.high_water
    assert token is not None
    assert token.cluster_time is not None
    return token.cluster_time.time - time(0).time


@settings(deadline=None, max_examples=150)
@given(replies, st.integers(0, 4), st.data())
def test_the_watermark_is_after_the_longest_finished_prefix(
    plan: list[Reply], handlers: int, data: st.DataObject
) -> None:
    """Whatever finishes in whatever order, the position is exactly after the finished prefix."""
    freed: list[int] = []
    watermark = Watermark(START, freed.append)
    pending: list[Place] = []
    batches: list[tuple[RawBatch, int, list[Place]]] = []
    first = 1
    for of in plan:
        whole, behind = reply(first, of)
        places = admit(watermark, whole, handlers)
        assert (places != []) == bool(handlers and of.events)
        batches.append((whole, behind, places))
        pending += places * handlers
        first = behind + 1
        _check(watermark, batches)
        early = data.draw(st.booleans(), label="finish one between replies")
        if pending and early:
            watermark.finish(pending.pop(data.draw(st.integers(0, len(pending) - 1))))
            _check(watermark, batches)
    # A handler that commits finishes a place twice: when it takes it, and at the commit.
    committing = [data.draw(st.booleans(), label="commits") for _ in pending]
    steps = [*enumerate(pending), *(step for step in enumerate(pending) if committing[step[0]])]
    inside: set[int] = set()
    for handler, place in data.draw(st.permutations(steps)):
        before, already = watermark.size, sum(freed)
        if not committing[handler]:
            watermark.finish(place)
        elif handler in inside:
            watermark.commit(place)
        else:
            inside.add(handler)
            watermark.take(place)
        assert watermark.size == before - (sum(freed) - already)
        _check(watermark, batches)
    assert watermark.empty
    assert (watermark.events, watermark.size) == (0, 0)
    assert at(watermark.position) == (batches[-1][1] if batches else 0)


def _check(watermark: Watermark, batches: list[tuple[RawBatch, int, list[Place]]]) -> None:
    expected, events, size, blocked = 0, 0, 0, False
    held = False  # after an event that somebody needs whole, no bytes are given back
    for whole, behind, places in batches:
        for place, slice_ in zip(places, whole.slices(), strict=False):
            blocked = blocked or place.unfinished > 0
            if blocked:
                events += len(slice_)
                held = held or place.unfinished > place.taken
                needed = held if place.unfinished else place.slice is not None
                assert needed is (place.slice is not None)
                size += slice_.size if needed else 0
            else:
                last = slice_.last().token
                assert last is not None
                assert last.cluster_time is not None
                expected = last.cluster_time.time - time(0).time
        if not blocked:
            expected = behind
        if not places and blocked and len(whole):
            raise AssertionError("a reply with events and handlers has places")
    assert at(watermark.position) == expected
    assert (watermark.events, watermark.size) == (events, size)
    assert watermark.position.cluster_time is not None
    # A post-batch token may be ahead of the event's time, never the other way round.
    assert watermark.position.cluster_time.time <= time(expected).time


def test_what_every_handler_has_taken_in_needs_no_bytes_and_moves_nothing() -> None:
    freed: list[int] = []
    watermark = Watermark(START, freed.append)
    (place,) = admit(watermark, batch([change(1)]), 2)
    size = watermark.size
    watermark.take(place)
    watermark.finish(place)
    assert freed == [0, size]
    assert (place.slice, watermark.position) == (None, START)
    assert (watermark.size, watermark.events) == (0, 1)
    watermark.commit(place)
    assert freed == [0, size, 0]
    assert watermark.position == Position(PositionKind.EVENT, token(1), token(1), time(1))
    assert (watermark.empty, watermark.events) == (True, 0)


@pytest.mark.parametrize("events", [[], [change(3)], [{"_id": {"_data": "7"}}]], ids=str)
def test_the_end_of_a_stream_is_marked_as_such_whatever_its_last_event_says(
    events: list[Document],
) -> None:
    """A pipeline may have removed the invalidate, or changed it into something else."""
    for before in (START, Position(PositionKind.EVENT, token(7), token(7), time(7))):
        watermark = Watermark(before)
        whole = batch(events, token(7))
        for place in watermark.admit(whole, whole.slices(), 1, invalidated=True):
            watermark.finish(place)
        assert watermark.position.kind is PositionKind.INVALIDATE
        assert watermark.position.high_water == token(7)


def test_after_an_invalidate_idle_tokens_move_the_watermark_and_keep_its_kind() -> None:
    """Only ``startAfter`` works there, and the invalidate's own token would age out."""
    watermark = Watermark(Position(PositionKind.INVALIDATE, token(2), token(2), time(2)))
    admit(watermark, batch([], token(2)), 1)
    assert watermark.position == Position(PositionKind.INVALIDATE, token(2), token(2), time(2))
    admit(watermark, batch([], token(7)), 1)
    assert watermark.position == Position(PositionKind.INVALIDATE, token(2), token(7), time(7))
    (place,) = admit(watermark, batch([change(8)]), 1)
    watermark.finish(place)
    assert watermark.position == Position(PositionKind.EVENT, token(8), token(8), time(8))


def test_without_any_token_the_time_of_the_first_reply_counts() -> None:
    watermark = Watermark(NOTHING)
    admit(watermark, batch([], None, time(3)), 1)
    admit(watermark, batch([], None, time(9)), 1)
    assert watermark.position == Position(PositionKind.IDLE, None, None, time(3))


def test_rows_move_the_snapshot_and_no_position() -> None:
    """Each place of rows has the snapshot's progress; idle tokens between rows still count."""
    watermark = Watermark(START)
    made = [SnapshotProgress(str(n), SnapshotMode.INITIAL) for n in range(5)]
    rows = batch([change(n) for n in (1, 2, 3)])
    (first,) = admit(watermark, batch([change(1)]), handlers=1)
    (one, two) = watermark.admit_rows(rows.slices(2), 1, time(1), lambda count: made[count])
    watermark.admit(batch([], token(5)), [], 1)
    watermark.finish(one)
    assert (watermark.position.snapshot, at(watermark.position)) == (None, 0)
    watermark.finish(first)
    assert (watermark.position.snapshot, at(watermark.position)) == (made[2], 1)
    one.note("audit", token(1))
    watermark.finish(two)
    assert (watermark.position.snapshot, at(watermark.position)) == (made[3], 5)
    assert watermark.position.event_token == token(1)
    assert watermark.position.sink_digests == {}
    assert (watermark.events, watermark.size, watermark.empty) == (0, 0, True)


def test_an_empty_slice_is_finished_at_once() -> None:
    watermark = Watermark(START)
    made = SnapshotProgress("5f3a", SnapshotMode.INITIAL)
    assert watermark.admit_rows([], 1, time(1), lambda _: made) == []
    assert (watermark.position.snapshot, watermark.handled_time) == (made, time(1))
