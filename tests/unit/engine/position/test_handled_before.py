"""At the start of a run, exactly the events that a handler has already are filtered out."""

from typing import Any

import pytest

from tailrace.engine.position.handled_before import HandledBefore
from tailrace.event import ChangeEvent
from tailrace.model import Progress, ResumeToken
from tests.unit.engine.changes import OPAQUE, change, number, time, token


def events(*numbers: int) -> list[ChangeEvent]:
    return [ChangeEvent.from_document(change(n)) for n in numbers]


def at_three(*tokens: ResumeToken) -> list[ChangeEvent]:
    """Events 1, 2, … with these tokens, all with the time of event 3: a transaction."""
    return [
        ChangeEvent.from_document(change(n, _id=each.document, clusterTime=time(3)))
        for n, each in enumerate(tokens, 1)
    ]


def keys(found: list[ChangeEvent]) -> list[Any]:
    return [event.document_key and event.document_key["_id"] for event in found]


def up_to(n: int, *handled: int, waits: bool = True) -> HandledBefore:
    """A filter of everything up to event ``n``, and of these events."""
    digests = frozenset(token(each).digest for each in handled)
    until = time(max(handled)) if handled else None
    return HandledBefore(Progress(token(n), time(n), digests, until), waits=waits)


def left(before: HandledBefore, *numbers: int) -> list[int]:
    return [number(event) for event in before.of(events(*numbers))]


def test_events_after_the_position_pass() -> None:
    before = up_to(3)
    assert left(before, 1, 2) == []
    assert not before.over
    assert left(before, 3, 4, 5) == [4, 5]
    assert before.over


def test_single_events_after_the_position_are_removed_once_each() -> None:
    before = up_to(3, 5, 7)
    assert left(before, 3, 4, 5) == [4]
    assert not before.over
    assert before.expected == (frozenset({token(7).digest}), time(7))
    assert left(before, 6, 7, 8) == [6, 8]
    assert before.over


def test_tokens_that_sort_decide_within_a_transaction() -> None:
    """Even if the position's own event never comes, for example after a change of the pipeline."""
    for waits in (True, False):
        before = HandledBefore(Progress(token(3, "22"), time(3)), waits=waits)
        got = before.of(at_three(token(3, "21"), token(3, "23"), token(3, "24")))
        assert keys(got) == [2, 3]
        assert before.over


@pytest.mark.parametrize(("waits", "left"), [(True, [3, 4]), (False, [1, 3, 4])])
def test_the_event_itself_decides_within_a_transaction_of_opaque_tokens(
    waits: bool, left: list[int]
) -> None:
    """A handler that does not wait for it may get an earlier event twice."""
    before = HandledBefore(Progress(OPAQUE[2], time(3)), waits=waits)
    assert keys(before.of(at_three(*OPAQUE[1:5]))) == left
    assert before.over


def test_an_idle_position_is_not_an_event() -> None:
    """Its token sorts before events of the same time, and no event has this token."""
    before = HandledBefore(Progress(token(3, "20"), time(3)), waits=False)
    assert keys(before.of(at_three(token(3, "21"), token(3, "22")))) == [1, 2]
    opaque = HandledBefore(Progress(OPAQUE[0], time(3)), waits=False)
    assert keys(opaque.of(at_three(*OPAQUE[1:3]))) == [1, 2]


def test_a_time_alone_means_everything_before_it() -> None:
    before = HandledBefore(Progress(None, time(3)), waits=False)
    assert left(before, 1, 2, 3, 4) == [3, 4]
    assert before.over
