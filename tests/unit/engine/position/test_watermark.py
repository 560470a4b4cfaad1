"""The watermark: after everything that is handled, never past an unhandled event."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.engine.position.place import Place
from tailrace.engine.position.watermark import Watermark
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
@given(replies, st.booleans(), st.data())
def test_the_watermark_is_after_the_longest_finished_prefix(
    plan: list[Reply], handles: bool, data: st.DataObject
) -> None:
    """Whatever finishes in whatever order, the position is exactly after the finished prefix."""
    freed: list[int] = []
    watermark = Watermark(START, freed.append, handles=handles)
    pending: list[Place] = []
    batches: list[tuple[RawBatch, int, list[Place]]] = []
    first = 1
    for of in plan:
        whole, behind = reply(first, of)
        places = admit(watermark, whole)
        assert (places != []) == bool(handles and of.events)
        batches.append((whole, behind, places))
        pending += places
        first = behind + 1
        _check(watermark, batches)
        early = data.draw(st.booleans(), label="finish one between replies")
        if pending and early:
            watermark.finish(pending.pop(data.draw(st.integers(0, len(pending) - 1))))
            _check(watermark, batches)
    # A handler that commits takes a place, and finishes it at the commit.
    committing = [data.draw(st.booleans(), label="commits") for _ in pending]
    steps = [*enumerate(pending), *(step for step in enumerate(pending) if committing[step[0]])]
    for number, place in data.draw(st.permutations(steps)):
        before, already = watermark.size, sum(freed)
        if committing[number] and not place.taken:
            watermark.take(place)
        else:
            watermark.finish(place)
        assert watermark.size == before - (sum(freed) - already)
        _check(watermark, batches)
    assert watermark.empty
    assert (watermark.events, watermark.size) == (0, 0)
    assert at(watermark.position) == (batches[-1][1] if batches else 0)


def _check(watermark: Watermark, batches: list[tuple[RawBatch, int, list[Place]]]) -> None:
    expected, events, size, blocked = 0, 0, 0, False
    held = False  # after an event that is needed whole, no bytes are given back
    for whole, behind, places in batches:
        for place, slice_ in zip(places, whole.slices(), strict=False):
            blocked = blocked or not place.finished
            if blocked:
                events += len(slice_)
                held = held or not (place.finished or place.taken)
                needed = place.slice is not None if place.finished else held
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


def test_what_the_handler_has_taken_in_needs_no_bytes_and_moves_nothing() -> None:
    """But what it holds of it counts, until it holds less."""
    freed: list[int] = []
    watermark = Watermark(START, freed.append)
    (place,) = admit(watermark, batch([change(1)]))
    size = watermark.size
    watermark.take(place)
    watermark.hold(40)
    assert freed == [size, -40]
    assert (place.slice, watermark.position) == (None, START)
    assert (watermark.size, watermark.events) == (40, 1)
    watermark.hold(0)
    watermark.finish(place)
    assert freed == [size, -40, 40, 0]
    assert watermark.position == Position(PositionKind.EVENT, token(1), token(1), time(1))
    assert (watermark.empty, watermark.events) == (True, 0)


@pytest.mark.parametrize("events", [[], [change(3)], [{"_id": {"_data": "7"}}]], ids=str)
def test_the_end_of_a_stream_is_marked_as_such_whatever_its_last_event_says(
    events: list[Document],
) -> None:
    """A pipeline may have removed the invalidate, or changed it into something else."""
    for before in (START, Position(PositionKind.EVENT, token(7), token(7), time(7))):
        watermark = Watermark(before)
        for place in admit(watermark, batch(events, token(7)), invalidated=True):
            watermark.finish(place)
        assert watermark.position.kind is PositionKind.INVALIDATE
        assert watermark.position.high_water == token(7)


def test_after_an_invalidate_idle_tokens_move_the_watermark_and_keep_its_kind() -> None:
    """Only ``startAfter`` works there, and the invalidate's own token would age out."""
    watermark = Watermark(Position(PositionKind.INVALIDATE, token(2), token(2), time(2)))
    admit(watermark, batch([], token(2)))
    assert watermark.position == Position(PositionKind.INVALIDATE, token(2), token(2), time(2))
    admit(watermark, batch([], token(7)))
    assert watermark.position == Position(PositionKind.INVALIDATE, token(2), token(7), time(7))
    (place,) = admit(watermark, batch([change(8)]))
    watermark.finish(place)
    assert watermark.position == Position(PositionKind.EVENT, token(8), token(8), time(8))


def test_without_any_token_the_time_of_the_first_reply_counts() -> None:
    watermark = Watermark(NOTHING)
    admit(watermark, batch([], None, time(3)))
    admit(watermark, batch([], None, time(9)))
    assert watermark.position == Position(PositionKind.IDLE, None, None, time(3))


def test_rows_move_the_snapshot_and_no_position() -> None:
    """Each place of rows has the snapshot's progress; idle tokens between rows still count."""
    watermark = Watermark(START)
    made = [SnapshotProgress(str(n), SnapshotMode.INITIAL) for n in range(5)]
    rows = batch([change(n) for n in (1, 2, 3)])
    (first,) = admit(watermark, batch([change(1)]))
    (one, two) = watermark.admit_rows(rows.slices(2), time(1), lambda count: made[count])
    admit(watermark, batch([], token(5)))
    watermark.finish(one)
    assert (watermark.position.snapshot, at(watermark.position)) == (None, 0)
    watermark.finish(first)
    assert (watermark.position.snapshot, at(watermark.position)) == (made[2], 1)
    one.note(token(1))
    watermark.finish(two)
    assert (watermark.position.snapshot, at(watermark.position)) == (made[3], 5)
    assert watermark.position.event_token == token(1)
    assert watermark.position.stored == ""
    assert (watermark.events, watermark.size, watermark.empty) == (0, 0, True)


def test_an_empty_slice_is_finished_at_once() -> None:
    watermark = Watermark(START)
    made = SnapshotProgress("5f3a", SnapshotMode.INITIAL)
    assert watermark.admit_rows([], time(1), lambda _: made) == []
    assert (watermark.position.snapshot, watermark.handled_time) == (made, time(1))


def test_the_handler_has_the_first_rows_of_several_places() -> None:
    """As its destination says after a crash: they are not handed over again."""
    made = SnapshotProgress("5f3a", SnapshotMode.INITIAL)
    slices = list(batch([change(n) for n in range(1, 6)]).slices(2))
    places = Watermark(START).admit_rows(slices, time(1), lambda _: made, already_stored=3)
    assert [place.already_stored for place in places] == [3, 1, 0]


def test_what_a_destination_has_stored_moves_with_the_position() -> None:
    watermark = Watermark(replace(START, stored="before", chosen=True))
    (one,), (two,) = (admit(watermark, batch([change(n)])) for n in (1, 2))
    two.note(token(2))
    watermark.finish(two)
    watermark.finish(one)
    assert watermark.position.stored == token(2).digest
    assert not watermark.position.chosen, "an operator's choice counts once"
    (three,) = admit(watermark, batch([change(3)]))
    watermark.finish(three)  # the handler did not want it
    assert watermark.position.stored == token(2).digest
    admit(watermark, batch([], token(5)))
    assert watermark.position.stored == token(2).digest


def test_single_events_are_forgotten_once_the_position_has_passed_all_of_them() -> None:
    handled = frozenset({token(2).digest, token(3).digest})
    watermark = Watermark(replace(START, handled=handled, until=time(3)))
    left = []
    for n in range(1, 5):
        (place,) = admit(watermark, batch([change(n)]))
        watermark.finish(place)
        left.append(watermark.position.handled)
    assert left == [handled, handled, handled, frozenset()]
    assert watermark.position.until is None


def test_a_stream_that_begins_further_back_leads_no_position_back() -> None:
    """It goes on at the handler's own last event; nothing before it counts, nor does a bookmark."""
    start = Position(PositionKind.EVENT, token(5), token(7), time(5))
    watermark = Watermark(start, floor=start.progress)
    for n in (3, 4):
        (place,) = admit(watermark, batch([change(n)]))
        watermark.finish(place)
        assert replace(watermark.position, started=None) == start
    admit(watermark, batch([], token(4, "2C")))
    assert watermark.position.high_water == token(7)
    for n in (5, 8):
        (place,) = admit(watermark, batch([change(n)]))
        watermark.finish(place)
        assert watermark.position.event_token == token(n)


@pytest.mark.parametrize("opened", range(4))
def test_a_handler_that_leaves_keeps_what_it_has_opened(opened: int) -> None:
    """The rest will be read again: its position is not after any of it, nor after a bookmark."""
    freed: list[int] = []
    watermark = Watermark(START, freed.append)
    places = [place for n in range(1, 5) for place in admit(watermark, batch([change(n)]))]
    admit(watermark, batch([], token(9)))
    size = watermark.size
    watermark.drop_after(places[opened].number)
    left = opened + 1
    assert (watermark.events, watermark.size) == (left, size * left // 4)
    assert sum(freed) == size - watermark.size
    watermark.finish(*places[:left])
    assert watermark.empty
    assert at(watermark.position) == left
    assert sum(freed) == size


def test_a_run_that_is_over_gives_back_what_the_handler_holds() -> None:
    freed: list[int] = []
    watermark = Watermark(START, freed.append)
    one, _ = (admit(watermark, batch([change(n)]))[0] for n in (1, 2))
    size = watermark.size
    watermark.take(one)
    watermark.hold(70)
    watermark.abandon()
    assert (sum(freed), watermark.size, watermark.events) == (size, 0, 0)
    assert freed[-1] == size // 2 + 70
