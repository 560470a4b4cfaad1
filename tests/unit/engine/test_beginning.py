"""Where a life begins when destinations store positions of their own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from service.engine.beginning import Behind, beginning
from service.errors import ScopeHalted
from service.model import (
    ChangeEvent,
    Checkpoint,
    CheckpointKind,
    ResumeToken,
    SinkPosition,
    StartPoint,
)
from service.model.checkpoint import CHOSEN
from tests.unit.engine.changes import change, number, time, token

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OPAQUE = [ResumeToken.of({"_data": f"opaque-{n}"}) for n in range(10)]
"""Tokens that do not tell their time."""


def checkpoint(n: int, **fields: Any) -> Checkpoint:
    """A checkpoint behind event ``n``."""
    record: dict[str, Any] = {
        "scope": "orders",
        "kind": CheckpointKind.EVENT,
        "event_token": token(n),
        "high_water": token(n),
        "cluster_time": time(n),
        "cluster": "",
        "fingerprint": "f",
        "epoch": 1,
        "sequence": 1,
        "saved_at": NOW,
    }
    return Checkpoint(**(record | fields))


def at(n: int) -> SinkPosition:
    return SinkPosition(token(n))


def begins(
    saved: Checkpoint | None,
    *,
    others: bool = False,
    start: StartPoint | None = None,
    **positions: Any,
) -> Any:
    wanted = saved.start_point if saved is not None else start or StartPoint()
    return beginning("orders", wanted, saved, "f", positions, others=others)


def test_without_a_position_the_checkpoint_decides() -> None:
    saved = checkpoint(5)
    assert begins(saved, lake=None).start == saved.start_point
    assert begins(None, lake=None).start == StartPoint()


def test_a_destination_alone_decides_whether_ahead_or_restored() -> None:
    for n in (3, 5, 8):
        begun = begins(checkpoint(5), lake=at(n))
        assert begun.start == StartPoint(start_after=token(n))
        assert begun.has(begun.start) == {}


def test_a_destination_that_has_just_what_is_noted_takes_the_checkpoint() -> None:
    """The checkpoint may be much later: an idle stream moves it, and no destination."""
    saved = checkpoint(50, owned={"lake": token(3).digest})
    assert begins(saved, lake=at(3)).start == saved.start_point


def test_without_a_checkpoint_the_destination_decides_for_all() -> None:
    begun = begins(None, lake=at(3), others=True)
    assert begun.start == StartPoint(start_after=token(3))


def test_without_a_checkpoint_the_configured_start_may_be_the_earlier() -> None:
    """A crash before the first checkpoint: other handlers must not lose what the sink has."""
    for start in (StartPoint(at_operation_time=time(1)), StartPoint(resume_after=token(1))):
        begun = begins(None, lake=at(3), others=True, start=start)
        assert begun.start == start
        assert begun.has(begun.start) == {"lake": at(3)}
    later = begins(None, lake=at(3), others=True, start=StartPoint(at_operation_time=time(5)))
    assert later.start == StartPoint(start_after=token(3))


def test_beside_other_handlers_the_earlier_position_decides() -> None:
    ahead = begins(checkpoint(5), lake=at(8), others=True)
    assert ahead.start == checkpoint(5).start_point
    assert ahead.has(ahead.start) == {"lake": at(8)}
    restored = begins(checkpoint(5), lake=at(3), others=True)
    assert restored.start == StartPoint(start_after=token(3))
    assert restored.has(restored.start) == {}


def test_two_destinations_begin_at_the_earlier() -> None:
    begun = begins(checkpoint(5), lake=at(8), sink=at(6))
    assert begun.start == StartPoint(start_after=token(6))
    assert begun.has(begun.start) == {"lake": at(8)}


def test_one_that_has_what_is_noted_keeps_the_checkpoint_for_the_other() -> None:
    saved = checkpoint(5, owned={"sink": token(2).digest})
    begun = begins(saved, lake=at(8), sink=at(2))
    assert begun.start == saved.start_point
    assert begun.has(begun.start) == {"lake": at(8)}


def test_equal_times_begin_at_that_time() -> None:
    """Events of one transaction share it: which came first cannot be told."""
    saved = checkpoint(5, event_token=token(5, "2A"), high_water=token(5, "2A"))
    begun = begins(saved, lake=at(5), others=True)
    assert begun.start == StartPoint(at_operation_time=time(5))
    assert begun.has(begun.start) == {"lake": at(5)}


def test_times_may_come_with_the_position() -> None:
    position = SinkPosition(OPAQUE[8], time(8))
    begun = begins(checkpoint(5), lake=position, others=True)
    assert begun.has(begun.start) == {"lake": position}


def test_positions_that_cannot_be_compared_halt_the_scope() -> None:
    with pytest.raises(ScopeHalted, match=r"'orders'.*'lake'.*SinkPosition\(token, cluster_time"):
        begins(checkpoint(5), lake=SinkPosition(OPAQUE[8]), others=True)


def test_a_checkpoint_without_a_time_is_the_earlier() -> None:
    """Where tokens tell no time, the first idle position has none until an event is handled."""
    saved = checkpoint(5, event_token=None, high_water=OPAQUE[5], cluster_time=None)
    begun = begins(saved, lake=at(8), others=True)
    assert begun.start == saved.start_point
    assert begun.has(begun.start) == {"lake": at(8)}


def test_alone_it_needs_no_time() -> None:
    begun = begins(checkpoint(5), lake=SinkPosition(OPAQUE[8]))
    assert begun.start == StartPoint(start_after=OPAQUE[8])


def test_a_changed_pipeline_goes_through_the_time() -> None:
    """The token belongs to the old one."""
    for saved, position in (
        (checkpoint(5, fingerprint="old"), at(8)),
        (checkpoint(5), SinkPosition(token(8), fingerprint="old")),
    ):
        begun = begins(saved, lake=position)
        assert begun.start == StartPoint(at_operation_time=time(8))
        assert begun.has(begun.start) == {"lake": position}
    with pytest.raises(ScopeHalted, match="pipeline or options changed"):
        begins(checkpoint(5, fingerprint="old"), lake=SinkPosition(OPAQUE[8]))


def test_what_an_operator_chose_counts() -> None:
    saved = checkpoint(2, owned={CHOSEN: ""})
    assert begins(saved, lake=at(8), others=True).start == saved.start_point
    assert begins(saved, lake=at(8)).own == {}


def events(*numbers: int) -> list[ChangeEvent]:
    return [ChangeEvent.from_document(change(n)) for n in numbers]


def test_behind_lets_through_what_follows_the_event() -> None:
    behind = Behind(at(3))
    assert behind.of(events(1, 2)) == []
    assert not behind.passed
    assert [number(event) for event in behind.of(events(3, 4, 5))] == [4, 5]
    assert behind.passed


def test_behind_ends_with_a_later_time_though_the_event_never_comes() -> None:
    behind = Behind(at(3))
    assert [number(event) for event in behind.of(events(1, 2, 4))] == [4]


def test_behind_waits_for_the_event_among_those_of_its_time() -> None:
    documents = [
        change(n, _id=token(3, f"2{n}").document, clusterTime=time(3)) for n in range(1, 5)
    ]
    behind = Behind(SinkPosition(token(3, "22")))
    left = behind.of([ChangeEvent.from_document(document) for document in documents])
    assert [event.document_key for event in left] == [{"_id": 3}, {"_id": 4}]


def test_behind_as_the_last_event_leaves_nothing() -> None:
    behind = Behind(at(3))
    assert behind.of(events(2, 3)) == []
    assert behind.passed
