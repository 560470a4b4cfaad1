"""Where a handler begins: at its checkpoint, or where its destination stores that it stands."""

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.engine.ports import RunIdentity
from tailrace.engine.position.start_position import (
    StartPosition,
    is_as_noted,
    position_at,
    start_position,
    together,
)
from tailrace.errors import ScopeHalted
from tailrace.model import Position, PositionKind, Progress, SinkPosition, StartPoint
from tailrace.model.progress import NOTHING
from tailrace.model.sink_position import NO_TOKEN
from tailrace.model.snapshot import (
    DocumentId,
    RangeProgress,
    SnapshotMode,
    SnapshotProgress,
    SnapshotState,
    StoredRows,
)
from tailrace.model.start import NOW
from tailrace.model.subscription import Subscription
from tests.unit.engine.changes import OPAQUE, checkpoint, time, token

IDENTITY = RunIdentity("orders", "rs0", "f", 1)
FIRST = StartPoint(at_operation_time=time(1))


def at(n: int, **fields: Any) -> SinkPosition:
    return SinkPosition(token(n), **fields)


def noted(n: int, **fields: Any) -> Subscription:
    """A handler that is after event ``n``; ``fields`` as those of :func:`checkpoint`."""
    return checkpoint(n, **fields).last


def begins(
    known: Subscription | None,
    sink: SinkPosition | None = None,
    *,
    start: StartPoint = FIRST,
    cluster: str = "rs0",
    **fields: Any,
) -> StartPosition:
    return start_position(IDENTITY, "lake", start, known, cluster, sink, **fields)


def has(n: int) -> Progress:
    """A position that covers everything up to event ``n``."""
    return Progress(token(n), time(n))


# --- with a checkpoint, and without -------------------------------------------------------------


@pytest.mark.parametrize("start", [FIRST, NOW, StartPoint(start_after=token(3))], ids=str)
def test_a_new_handler_begins_where_that_is_configured(start: StartPoint) -> None:
    begun = begins(None, start=start)
    assert (begun.start, begun.position, begun.has) == (start, position_at(start), NOTHING)
    kind = PositionKind.INVALIDATE if start.start_after else PositionKind.IDLE
    assert begun.position.kind is kind


def test_a_handler_begins_at_its_checkpoint() -> None:
    """What it has of later single events is removed from the stream."""
    handled = frozenset({token(8).digest})
    known = noted(5, high_water=token(6), handled=handled, until=time(8))
    begun = begins(known)
    assert begun.start == StartPoint(resume_after=token(6))
    assert begun.position == known.position
    assert (begun.has, begun.save_first) == (known.position.progress, False)
    assert not begun.is_exact(begun.start)


def test_a_choice_or_a_halt_is_saved_before_the_first_change() -> None:
    """They count once: the next run must not find them again."""
    for known in (noted(5, chosen=True), noted(5, halted="why")):
        begun = begins(known)
        assert begun.save_first
        assert not begun.position.chosen


@pytest.mark.parametrize("cluster", ["rs1", "rs0/else", "mongos"])
def test_a_checkpoint_of_another_cluster_halts(cluster: str) -> None:
    identity = replace(IDENTITY, cluster="rs0/5f3a")
    with pytest.raises(ScopeHalted, match=r"scope 'orders'.*tailrace checkpoints reset orders"):
        start_position(identity, "lake", FIRST, noted(5), cluster)


def test_a_changed_pipeline_goes_through_the_time() -> None:
    """The token belongs to the old pipeline. What the handler has of this time does not come."""
    with capture_logs() as logs:
        begun = begins(noted(5, fingerprint="old"))
    assert begun.start == StartPoint(at_operation_time=time(5))
    assert begun.has == has(5)
    assert not begun.is_exact(begun.start)
    (reported,) = logs
    assert (reported["event"], reported["handler"]) == ("checkpoint.pipeline_changed", "lake")
    with pytest.raises(ScopeHalted, match="pipeline or options changed"):
        begins(noted(5, fingerprint="old", cluster_time=None))


def test_tokens_of_another_pipeline_stay_so_until_the_stream_has_passed_them() -> None:
    """They tell what the handler has, and the time tells where to start."""
    for known in (noted(5, fingerprint="old"), noted(5, fingerprint="old", chosen=True)):
        begun = begins(known)
        assert begun.start == StartPoint(at_operation_time=time(5))
        assert begun.position == replace(known.position, chosen=False)
        assert (begun.fingerprint, begun.has) == ("old", has(5))


def test_what_was_set_aside_stays_so_whatever_the_pipeline() -> None:
    known = noted(5, fingerprint="old", kind=PositionKind.SET_ASIDE)
    begun = begins(known)
    assert begun.start == StartPoint(at_operation_time=time(5), past=token(5))
    assert begun.is_exact(begun.start)


# --- with a position of the destination's own ---------------------------------------------------


def test_a_destination_that_is_at_the_checkpoint_begins_there() -> None:
    """Its token after the event may be later, if the server has seen more."""
    known = noted(5, high_water=token(9))
    begun = begins(known, at(5))
    assert begun.start == StartPoint(resume_after=token(9))
    assert (begun.own, begun.is_exact(begun.start)) == (None, True)
    assert begun.position.stored == token(5).digest


def test_a_destination_that_has_exactly_the_noted_events_begins_at_the_checkpoint() -> None:
    """The checkpoint may be much later: an idle stream moves it, but not the destination."""
    known = noted(50, stored=token(3).digest)
    begun = begins(known, at(3))
    assert begun.start == known.position.start_point
    assert begun.position.stored == token(3).digest


@pytest.mark.parametrize("own", [3, 8], ids=["restored", "ahead, after a crash"])
def test_a_destination_that_is_elsewhere_is_believed(own: int) -> None:
    """Its position may be that of an invalidate, after which only ``startAfter`` works."""
    snapshot = SnapshotProgress("5f3a", SnapshotMode.INITIAL)
    known = noted(5, snapshot=snapshot, started=time(1), stored=token(5).digest)
    for stored, started in ((known, time(1)), (None, time(own))):
        begun = begins(stored, at(own))
        assert begun.start == StartPoint(start_after=token(own))
        assert (begun.has, begun.own, begun.save_first) == (has(own), at(own), True)
        assert begun.is_exact(begun.start)
        assert begun.position == Position(
            PositionKind.INVALIDATE,
            token(own),
            token(own),
            time(own),
            token(own).digest,
            snapshot=snapshot if stored else None,
        )
        assert begun.position.started == started


def test_what_was_noted_of_single_events_does_not_count_for_a_destination_elsewhere() -> None:
    handled = frozenset({token(8).digest})
    begun = begins(noted(5, handled=handled, until=time(8)), at(3))
    assert (begun.has, begun.position.handled) == (has(3), frozenset())


def test_what_an_operator_chose_counts_more_than_the_destination() -> None:
    begun = begins(noted(2, chosen=True), at(8))
    assert begun.start == StartPoint(resume_after=token(2))
    assert (begun.own, begun.save_first) == (None, True)
    # From then on the destination's own position is the noted one again.
    assert (begun.position.stored, begun.position.chosen) == (at(8).before_move, False)


def test_a_destination_that_has_come_back_to_where_an_order_moved_it_is_believed() -> None:
    """A crash before the next save: what was delivered again does not come once more."""
    moved = begins(noted(2, chosen=True), at(8, observed_generation=3)).position
    again = begins(Subscription(moved, "f", 4), at(8, observed_generation=3))
    assert (again.start, again.position.stored) == (StartPoint(resume_after=token(2)), moved.stored)
    there = at(8, observed_generation=4)
    assert begins(Subscription(moved, "f", 4), there).own == there


def test_a_destination_of_another_pipeline_goes_through_its_time() -> None:
    for known, position in (
        (noted(5, fingerprint="old"), at(8)),
        (noted(5), at(8, fingerprint="old")),
        (None, at(8, fingerprint="old")),
    ):
        begun = begins(known, position)
        assert begun.start == StartPoint(at_operation_time=time(8))
        assert begun.has == has(8)
        assert not begun.is_exact(begun.start)
        assert (begun.position.token, begun.position.stored) == (token(8), token(8).digest)
        assert begun.fingerprint == "old"
    with pytest.raises(ScopeHalted, match="'lake' stored its position"):
        begins(noted(5, fingerprint="old"), SinkPosition(OPAQUE[8]))


def test_an_opaque_token_is_as_good_as_another() -> None:
    """It is compared with nothing: each handler has a place of its own."""
    begun = begins(noted(5), SinkPosition(OPAQUE[8]))
    assert begun.start == StartPoint(start_after=OPAQUE[8])
    assert begun.is_exact(begun.start)


def test_a_destination_that_lost_its_position_is_reported() -> None:
    with capture_logs() as logs:
        begun = begins(noted(5, stored=token(5).digest))
        assert begins(noted(5)).start == begun.start == StartPoint(resume_after=token(5))
    assert [(log["event"], log["handler"]) for log in logs] == [("position.missing", "lake")]
    assert begun.position.stored == ""


def test_a_destination_that_is_down_is_assumed_to_be_as_noted() -> None:
    known = noted(5, stored=token(3).digest)
    with capture_logs() as logs:
        begun = begins(known, down=True)
    assert (begun.start, begun.position.stored) == (known.position.start_point, token(3).digest)
    assert logs == []


_SNAPSHOT = SnapshotProgress("5f3a", SnapshotMode.INITIAL)
_OVER = replace(_SNAPSHOT, state=SnapshotState.DONE)
_ROWS = StoredRows("5f3a", {})


@pytest.mark.parametrize(
    ("known", "sink", "expected"),
    [
        (None, None, True),
        (None, at(3), False),
        (noted(5), None, True),
        (noted(5, stored=token(5).digest), None, False),
        (noted(5, stored=token(3).digest), at(3), True),
        (noted(5, stored=token(3).digest), at(4), False),
        (noted(5, high_water=token(9)), at(5), True),
        (noted(5), SinkPosition(NO_TOKEN, rows=_ROWS), False),
        (noted(5, snapshot=_SNAPSHOT), at(5, rows=_ROWS), False),
        (noted(5, snapshot=_OVER), at(5, rows=_ROWS), True),
    ],
)
def test_what_a_destination_that_was_down_must_answer(
    known: Subscription | None, sink: SinkPosition | None, expected: bool
) -> None:
    """Else the run has begun elsewhere than it should have, and begins again."""
    if known is not None and sink is not None and sink.token == NO_TOKEN:
        known = replace(known, position=replace(known.position, snapshot=_SNAPSHOT))
    assert is_as_noted(known, sink) is expected


# --- a stream that begins elsewhere -------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "start", "exact"),
    [
        (noted(5), StartPoint(resume_after=token(5)), True),
        (noted(5), StartPoint(start_after=token(5)), True),
        (noted(5), StartPoint(resume_after=token(3)), False),
        (noted(5), StartPoint(at_operation_time=time(5)), False),
        (noted(5), NOW, True),
        (noted(5, handled=frozenset("ab")), StartPoint(resume_after=token(5)), False),
        (noted(5, handled=frozenset("ab")), NOW, True),
    ],
)
def test_only_a_stream_from_the_position_itself_has_nothing_to_remove(
    known: Subscription, start: StartPoint, exact: bool
) -> None:
    assert begins(known).is_exact(start) is exact


def test_a_position_without_a_token_has_everything_before_its_time() -> None:
    known = noted(5, kind=PositionKind.IDLE, event_token=None, high_water=None)
    begun = begins(known)
    assert begun.is_exact(StartPoint(at_operation_time=time(5)))
    assert not begun.is_exact(StartPoint(at_operation_time=time(3)))
    assert not begun.is_exact(StartPoint(resume_after=token(3)))


def test_handlers_that_are_hardly_apart_begin_with_one_stream() -> None:
    """Of the furthest one; the others read what they lack on their own."""
    starts = [begins(noted(n)) for n in (10, 2, 15, 9, 14)]
    assert together(starts) == [True, False, True, False, True]
    assert together(starts[1:2]) == [True]


def test_handlers_without_a_known_time_are_together_only_at_the_same_start() -> None:
    new, other = begins(None, start=NOW), begins(None, start=StartPoint(resume_after=OPAQUE[1]))
    assert together([new, new]) == [True, True]
    assert together([new, other]) == [True, False]
    assert together([new, begins(noted(5))]) == [False, True]


def test_handlers_with_different_snapshots_are_not_together() -> None:
    one, over, other, none = (
        begins(noted(5, snapshot=snapshot))
        for snapshot in (_SNAPSHOT, _OVER, replace(_SNAPSHOT, id="c0de"), None)
    )
    assert together([one, over, other, none]) == [True, False, False, False]
    assert together([over, none]) == [True, True]
    assert together([one, none, over], [0]) == [False, True, True]
    assert together([one, other], [0, 1]) == [True, False]


def test_handlers_whose_snapshots_one_reader_cannot_go_on_with_are_not_together() -> None:
    """Another plan has other ranges: one handler would lack rows, or get some again."""

    def at_rows(scanned: int, until: bytes | None = None, **fields: Any) -> StartPosition:
        whole = RangeProgress("c", "shop", "c", scanned=scanned)
        whole = replace(whole, until=DocumentId(until) if until else None)
        reading = replace(_SNAPSHOT, state=SnapshotState.READING, ranges={"c": whole}, **fields)
        return begins(noted(5, snapshot=reading))

    planned = begins(noted(5, snapshot=_SNAPSHOT))
    assert together([at_rows(0), planned]) == [True, True]
    assert together([at_rows(2), planned]) == [True, False]
    assert together([at_rows(0, handled=frozenset("r")), planned]) == [True, False]
    assert together([at_rows(2), at_rows(5)]) == [True, True]
    assert together([at_rows(2, b"k"), at_rows(5)]) == [True, False]
