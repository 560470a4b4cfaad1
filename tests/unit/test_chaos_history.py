"""The check of the chaos suite finds everything that it is there to find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.faults.chaos.history import (
    Arrival,
    Change,
    Life,
    Position,
    derived,
    differences,
    examine,
    regressions,
)

WRITTEN = {
    1: [Change("insert", 1), Change("update", 2), Change("delete", 3), Change("insert", 4)],
    2: [Change("insert", 1), Change("replace", 2), Change("update", 3)],
}
STREAM = [
    Arrival("a", 1, "insert", 1),
    Arrival("b", 2, "insert", 1),
    Arrival("c", 1, "update", 2),
    Arrival("d", 2, "replace", 2),
    Arrival("e", 1, "delete", None),
    Arrival("f", 2, "update", 3),
    Arrival("g", 1, "insert", 4),
]
# As documents may overtake one another: each in its own order.
PARALLEL = [STREAM[n] for n in (1, 0, 3, 5, 2, 4, 6)]


def life(stream: Sequence[Arrival], checkpoint: str | None, **fields: Any) -> Life:
    fields = {"parallel": stream, "starts": 1} | fields
    return Life(sequential=stream, checkpoint=checkpoint, **fields)


def complaints(*lives: Life) -> list[str]:
    return [text for _, text in examine(WRITTEN, lives).complaints]


WHOLE = life(STREAM, "g", parallel=PARALLEL, clean=True)
KILLED = life(STREAM[:5], "c", parallel=[STREAM[n] for n in (1, 0, 2, 4)])
AFTER = life(STREAM[3:], "g", clean=True)


def test_what_arrived_once_and_in_order_is_good() -> None:
    findings = examine(WRITTEN, [WHOLE])
    assert findings.complaints == []
    assert findings.changes == len(STREAM)
    assert findings.repeated == [0]


def test_what_lay_behind_the_checkpoint_may_come_again() -> None:
    """The document 2 was behind in parallel: it goes on there where it was."""
    findings = examine(WRITTEN, [KILLED, AFTER])
    assert findings.complaints == []
    assert findings.repeated == [0, 2]


def test_a_life_that_handed_nothing_over_is_good() -> None:
    assert complaints(life([], None), WHOLE) == []
    assert complaints(KILLED, life([], "c", starts=0), AFTER) == []


def test_a_watcher_that_began_anew_may_go_back_as_often() -> None:
    twice = [*STREAM[:5], *STREAM[3:6], *STREAM[3:]]
    assert complaints(life(twice, "g", starts=3)) == []
    assert "without a restart" in complaints(life(twice, "g", starts=2))[0]
    findings = examine(WRITTEN, [life(twice, "g", starts=3)])
    assert (findings.repeated, findings.restarted) == ([0], [5])


@pytest.mark.parametrize("place", range(len(STREAM)))
def test_a_lost_change_is_found(place: int) -> None:
    rest = [*STREAM[:place], *STREAM[place + 1 :]]
    found = complaints(life(rest, rest[-1].token, clean=True))
    assert any("lost or out of order" in text or "never arrived" in text for text in found)


@pytest.mark.parametrize("place", range(len(STREAM)))
def test_a_change_lost_in_parallel_is_found(place: int) -> None:
    rest = [*STREAM[:place], *STREAM[place + 1 :]]
    found = complaints(life(STREAM, "c", parallel=rest, clean=False))
    assert any("never arrived in parallel" in text or "ahead of" in text for text in found)


@pytest.mark.parametrize(("one", "other"), [(0, 2), (2, 4), (1, 3), (3, 5), (4, 6)])
def test_changes_of_one_document_in_the_wrong_order_are_found(one: int, other: int) -> None:
    swapped = list(STREAM)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    assert any("out of order" in text for text in complaints(life(swapped, "g", parallel=STREAM)))
    document = STREAM[one].document
    found = complaints(life(STREAM, "g", parallel=swapped))
    assert any(f"in parallel, document {document}: " in text for text in found)


def test_a_change_that_is_skipped_and_comes_later_is_found() -> None:
    """Nothing is missing in the end, and yet a crash in between would have lost it."""
    late = [*STREAM[:3], *STREAM[4:], STREAM[3]]
    assert any("out of order" in text for text in complaints(life(late, "g")))


def test_a_gap_in_what_comes_again_is_found() -> None:
    gap = life([STREAM[3], *STREAM[5:]], "g", parallel=STREAM[3:])
    assert complaints(KILLED, gap) == ["in sequence, 1 changes are skipped before change 6"]
    gap = life(STREAM[3:], "g", parallel=[*STREAM[3:4], *STREAM[5:]])
    before = replace(KILLED, parallel=STREAM[:5])
    assert complaints(before, gap) == [
        "in parallel, document 1: 1 changes are skipped before change 4"
    ]


def test_a_life_that_begins_behind_the_checkpoint_of_the_one_before_is_found() -> None:
    """Even where what it skips had been handled: nobody may rely on that."""
    begins_late = life(STREAM[4:], "g", parallel=STREAM[3:])
    assert complaints(KILLED, begins_late) == ["in sequence, 1 changes are skipped before change 5"]


def test_a_life_that_repeats_more_than_it_must_is_found() -> None:
    repeats = life(STREAM[2:], "g", parallel=STREAM[3:])
    assert complaints(KILLED, repeats) == [
        "in sequence, change 3 came again, from before the checkpoint"
    ]


def test_a_restart_from_before_the_checkpoint_of_this_life_is_found() -> None:
    back = life([*STREAM[3:5], *STREAM[1:]], "g", parallel=STREAM[3:], starts=2)
    assert "change 2 came again, from before the checkpoint" in complaints(KILLED, back)[0]


def test_a_change_that_comes_twice_is_found() -> None:
    twice = [*STREAM[:4], *STREAM[3:]]
    assert complaints(life(twice, "g", parallel=STREAM)) == [
        "in sequence, it went back to change 4 from 4 without a restart"
    ]
    assert "in parallel, document 2: " in complaints(life(STREAM, "g", parallel=twice))[0]


def test_a_change_that_was_never_written_is_found() -> None:
    extra = [*STREAM, Arrival("h", 2, "update", 4)]
    assert "document 2: update 4 of document 2 was never written" in complaints(life(extra, "h"))
    elsewhere = [*STREAM, Arrival("h", 9, "insert", 1)]
    assert any("document 9" in text for text in complaints(life(elsewhere, "h")))


def test_one_token_with_two_meanings_is_found() -> None:
    other = [STREAM[3]._replace(number=9), *STREAM[4:]]
    assert "came again as something else" in complaints(KILLED, life(other, "g"))[0]


def test_a_change_that_reached_one_handler_only_is_found() -> None:
    more = [*STREAM, Arrival("h", 2, "update", 4)]
    assert complaints(life(STREAM, "g", parallel=more)) == [
        "update 4 of document 2 reached one handler only"
    ]


def test_changes_of_one_document_at_once_are_found() -> None:
    """The handler says so by the operation."""
    overlapping = [*STREAM[:3], STREAM[3]._replace(operation="overlapping replace"), *STREAM[4:]]
    found = complaints(life(STREAM, "g", parallel=overlapping))
    assert "overlapping replace 2 of document 2 reached one handler only" in found


class TestCheckpoints:
    def test_ahead_of_a_handler(self) -> None:
        ahead = replace(KILLED, checkpoint="d")
        assert "the checkpoint is ahead of replace 2 of document 2 in parallel" in complaints(
            ahead, AFTER
        )
        found = complaints(life(STREAM[:3], "d", parallel=STREAM[:4]), AFTER)
        assert "the checkpoint is ahead of replace 2 of document 2 in sequence" in found

    def test_that_goes_back(self) -> None:
        back = life([], "a", starts=0)
        assert "the checkpoint went back from 2 to 0" in complaints(KILLED, back, AFTER)

    def test_of_no_change(self) -> None:
        assert "the checkpoint x is no change's" in complaints(replace(WHOLE, checkpoint="x"))

    def test_that_a_clean_stop_left_behind(self) -> None:
        left = replace(WHOLE, checkpoint="d")
        assert complaints(left) == ["a clean stop left 3 handled changes to come again"]

    def test_in_the_store(self) -> None:
        first, second = Position(1, 7, (100, 1)), Position(2, 1, (100, 2))
        assert regressions([first, second, second]) == []
        assert "from (2, 1) to (1, 7)" in regressions([second, first])[0]
        backwards = second._replace(sequence=2, cluster_time=(100, 1))
        assert "cluster time went back" in regressions([second, backwards])[0]


@given(st.data())
def test_any_kills_with_an_honest_replay_are_good_and_a_dropped_event_never(
    data: st.DataObject,
) -> None:
    def draw(strategy: st.SearchStrategy[Any]) -> Any:
        return data.draw(strategy)

    lives, begin = [], 0
    for _ in range(draw(st.integers(0, 4))):
        end = draw(st.integers(begin, len(STREAM)))
        behind = draw(st.integers(begin, end))
        token = STREAM[behind - 1].token if behind else None
        lives.append(life(STREAM[begin:end], token))
        begin = behind
    lives.append(life(STREAM[begin:], "g", clean=True))
    assert complaints(*lives) == []

    # A life that lacks its last change only ended sooner; any other is a gap.
    chosen = draw(
        st.sampled_from([n for n, each in enumerate(lives) if each.sequential[1:]] or [-1])
    )
    whole = lives[chosen].sequential
    if len(whole) > 1:
        at = draw(st.integers(0, len(whole) - 2))
        lives[chosen] = replace(lives[chosen], sequential=[*whole[:at], *whole[at + 1 :]])
        assert complaints(*lives)


class TestFinalState:
    def test_follows_every_operation(self) -> None:
        events = [
            event("insert", 1, fullDocument={"_id": 1, "n": 1}),
            event("insert", 2, fullDocument={"_id": 2, "n": 1}),
            event("update", 1, updateDescription={"updatedFields": {"n": 2, "writer": 3}}),
            event("replace", 2, fullDocument={"_id": 2, "n": 2}),
            event("delete", 2),
        ]
        assert derived(events) == {1: {"_id": 1, "n": 2, "writer": 3}}

    @pytest.mark.parametrize("other", [{}, {1: {"n": 1}}, {1: {"n": 2}, 2: {"n": 1}}])
    def test_differences_are_told(self, other: dict[int, Any]) -> None:
        there = {1: {"n": 2}}
        assert differences(there, there) == []
        assert len(differences(other, there)) == 1


def event(operation: str, key: int, **fields: Any) -> dict[str, Any]:
    return {"operationType": operation, "documentKey": {"_id": key}, **fields}
