"""Where a run begins if destinations store positions of their own."""

from typing import Any

import pytest

from tailrace.engine.ports import RunIdentity
from tailrace.engine.position.start_position import StartPosition, start_position
from tailrace.errors import ScopeHalted
from tailrace.model import (
    Checkpoint,
    Position,
    PositionKind,
    Progress,
    SinkPosition,
    StartPoint,
)
from tailrace.model.position import CHOSEN
from tests.unit.engine.changes import OPAQUE, checkpoint, time, token


def at(n: int) -> SinkPosition:
    return SinkPosition(token(n))


def begins(
    saved: Checkpoint | None,
    *,
    others: bool = False,
    start: StartPoint | None = None,
    **positions: Any,
) -> StartPosition:
    """The start position; with ``others``, there is another handler, ``audit``."""
    owner, configured = RunIdentity("orders", "rs0", "f", 1), start or StartPoint()
    return start_position(owner, configured, saved, positions, ["audit"] if others else [])


def has(n: int) -> Progress:
    """A position that covers everything up to event ``n``."""
    return Progress(token(n), time(n))


def test_a_destination_that_is_at_the_checkpoint_begins_there() -> None:
    """Its token after the event may be later, if the server has seen more."""
    saved = checkpoint(5, high_water=token(9))
    for others in (False, True):
        begun = begins(saved, lake=at(5), others=others)
        assert begun.start == saved.position.start_point
        assert begun.beyond(begun.start) == {}


def test_a_destination_that_has_exactly_the_noted_events_starts_at_the_checkpoint() -> None:
    """The checkpoint may be much later: an idle stream moves it, but not the destination."""
    saved = checkpoint(50, sink_digests={"lake": token(3).digest})
    assert begins(saved, lake=at(3)).start == saved.position.start_point


def test_beside_other_handlers_the_earlier_position_decides() -> None:
    ahead = begins(checkpoint(5), lake=at(8), others=True)
    assert ahead.start == checkpoint(5).position.start_point
    assert ahead.beyond(ahead.start) == {"lake": has(8)}
    restored = begins(checkpoint(5), lake=at(3), others=True)
    assert restored.start == StartPoint(start_after=token(3))
    # What the other has up to the checkpoint is not handed to it again.
    assert restored.beyond(restored.start) == {"audit": has(5)}


def test_what_the_checkpoint_notes_of_a_handler_counts_for_it() -> None:
    more = Progress(token(6), time(6), frozenset({token(8).digest}), time(8))
    saved = checkpoint(
        5, sink_digests={"sink": token(6).digest}, beyond={"audit": more, "sink": has(7)}
    )
    begun = begins(saved, sink=at(6), others=True)
    assert begun.start == saved.position.start_point
    assert begun.beyond(begun.start) == {"audit": more, "sink": has(7)}
    # But a destination that is elsewhere by now is believed.
    moved = begins(saved, sink=at(4), others=True)
    assert moved.start == StartPoint(start_after=token(4))
    assert moved.beyond(moved.start) == {"audit": more}


def test_two_destinations_begin_at_the_earlier() -> None:
    begun = begins(checkpoint(5), lake=at(8), sink=at(6))
    assert begun.start == StartPoint(start_after=token(6))
    assert begun.beyond(begun.start) == {"lake": has(8)}


def test_equal_times_begin_at_that_time() -> None:
    """Events of one transaction share a time, so their order is unknown."""
    saved = checkpoint(5, event_token=token(5, "2A"), high_water=token(5, "2A"))
    begun = begins(saved, lake=at(5), others=True)
    assert begun.start == StartPoint(at_operation_time=time(5))
    assert begun.beyond(begun.start) == {"lake": has(5), "audit": Progress(token(5, "2A"), time(5))}


def test_positions_that_cannot_be_compared_halt_the_scope() -> None:
    with pytest.raises(ScopeHalted, match=r"'orders'.*'lake'.*SinkPosition\(token, cluster_time"):
        begins(checkpoint(5), lake=SinkPosition(OPAQUE[8]), others=True)


def test_a_changed_pipeline_goes_through_the_time() -> None:
    """The token belongs to the old pipeline."""
    for saved, position in (
        (checkpoint(5, fingerprint="old"), at(8)),
        (checkpoint(5), SinkPosition(token(8), fingerprint="old")),
    ):
        begun = begins(saved, lake=position)
        assert begun.start == StartPoint(at_operation_time=time(8))
        assert begun.beyond(begun.start) == {"lake": has(8)}
    with pytest.raises(ScopeHalted, match="pipeline or options changed"):
        begins(checkpoint(5, fingerprint="old"), lake=SinkPosition(OPAQUE[8]))


def test_what_an_operator_chose_counts() -> None:
    saved = checkpoint(2, sink_digests={CHOSEN: ""})
    assert begins(saved, lake=at(8), others=True).start == saved.position.start_point
    assert begins(saved, lake=at(8)).own == {}


def test_the_first_position_is_the_checkpoint_where_the_stream_begins_there() -> None:
    saved = checkpoint(5, kind=PositionKind.IDLE, high_water=token(9))
    begun = begins(saved, lake=at(8), sink=at(5), others=True)
    position = begun.run(begun.start, saved, gap=False).position
    assert (position.kind, position.event_token, position.high_water) == (
        PositionKind.IDLE,
        token(5),
        token(9),
    )
    assert position.sink_digests == {"lake": token(8).digest, "sink": token(5).digest}
    assert position.beyond == {"lake": has(8)}


def test_the_first_position_is_the_earlier_one_of_a_destination() -> None:
    """It may be that of an invalidate, after which only ``startAfter`` works."""
    begun = begins(checkpoint(5), lake=at(3), others=True)
    position = begun.run(begun.start, checkpoint(5), gap=False).position
    assert position == Position(
        PositionKind.INVALIDATE,
        token(3),
        token(3),
        time(3),
        {"lake": token(3).digest},
        {"audit": has(5)},
    )


def test_the_first_position_after_a_gap_moves_no_handler_back() -> None:
    saved = checkpoint(5, sink_digests={"sink": token(4).digest})
    begun = begins(saved, lake=at(3), table=at(8), sink=at(4), others=True)
    position = begun.run(StartPoint(resume_after=token(5)), saved, gap=True).position
    assert position.beyond == {"table": has(8)}
    assert position.sink_digests["lake"] == token(3).digest
