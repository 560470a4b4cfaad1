"""The account of the chaos suite finds everything that it is there to find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.faults.chaos.account import Account, Kind, examine
from tests.faults.chaos.history import (
    Arrival,
    Change,
    Position,
    Process,
    Recipient,
    derived,
    differences,
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
RECIPIENTS = [
    Recipient("sequence", sequence=True),
    Recipient("parallel", sequence=False),
    Recipient("owner", sequence=True, owns=True),
]


def process(stream: Sequence[Arrival], checkpoint: str | None, **more: Any) -> Process:
    """One in which each handler got the stream, but for the ones that ``more`` names."""
    arrivals = {each.name: more.pop(each.name, stream) for each in RECIPIENTS}
    return Process(arrivals, checkpoint, **{"starts": 1, **more})


def account(*processes: Process) -> Account:
    return examine(WRITTEN, processes, RECIPIENTS)


def complaints(*processes: Process, kind: Kind | None = None) -> list[str]:
    found = account(*processes).complaints
    return [each.text for each in found if kind in (None, each.kind)]


WHOLE = process(STREAM, "g", parallel=PARALLEL, clean=True)
KILLED = process(STREAM[:5], "c", parallel=[STREAM[n] for n in (1, 0, 2, 4)])
AFTER = process(STREAM[3:], "g", owner=STREAM[5:], clean=True)


def test_what_arrived_once_and_in_order_is_good() -> None:
    found = account(WHOLE)
    assert found.complaints == []
    assert found.changes == len(STREAM)
    for tally in found.tallies.values():
        assert (tally.changes, tally.lost, tally.disordered, tally.again) == (7, 0, 0, [0])


def test_what_was_behind_the_checkpoint_may_come_again_after_a_kill() -> None:
    """But for a handler that owns its position; in parallel, document 2 had come less far."""
    found = account(KILLED, AFTER)
    assert found.complaints == []
    assert {name: tally.after_kills for name, tally in found.tallies.items()} == {
        "sequence": 2,
        "parallel": 1,
        "owner": 0,
    }
    assert found.tallies["sequence"].again == [0, 2]


def test_what_is_remembered_behind_the_checkpoint_need_not_come_again() -> None:
    assert complaints(KILLED, process(STREAM[5:], "g", parallel=AFTER.arrivals["parallel"])) == []


def test_a_checkpoint_without_a_change_of_its_own_has_its_place_in_the_stream() -> None:
    idle = process(STREAM[:5], "c5", parallel=STREAM[:5])
    after = process(STREAM[3:], "g", owner=STREAM[5:], clean=True)
    assert complaints(idle, after) == []
    ahead = process(STREAM[:5], "f5", parallel=STREAM[:5])
    assert len(complaints(ahead, after, kind=Kind.CHECKPOINT)) == 3


def test_a_process_that_handed_nothing_over_is_good() -> None:
    assert complaints(process([], None), WHOLE) == []
    assert complaints(KILLED, process([], "c", starts=0), AFTER) == []


def test_a_watcher_that_began_anew_may_go_back_as_often() -> None:
    twice = [*STREAM[:5], *STREAM[3:6], *STREAM[3:]]
    again = process(twice, "g", starts=3, owner=STREAM)
    assert complaints(again) == []
    assert account(again).tallies["sequence"].after_restarts == 5
    assert "without a restart" in complaints(process(twice, "g", starts=2, owner=STREAM))[0]


@pytest.mark.parametrize("place", range(len(STREAM)))
def test_a_lost_change_is_found(place: int) -> None:
    rest = [*STREAM[:place], *STREAM[place + 1 :]]
    found = account(process(rest, rest[-1].token, clean=True))
    assert any(each.kind is Kind.LOST for each in found.complaints)
    assert all(tally.lost for tally in found.tallies.values())


@pytest.mark.parametrize("name", [each.name for each in RECIPIENTS])
@pytest.mark.parametrize("place", range(len(STREAM)))
def test_a_change_lost_by_one_handler_is_found(place: int, name: str) -> None:
    rest = [*STREAM[:place], *STREAM[place + 1 :]]
    found = account(process(STREAM, "a", **{name: rest}))
    lost = [each.text for each in found.complaints if each.kind is Kind.LOST]
    assert [text.split(":")[0] for text in lost] == [name]
    assert {each for each, tally in found.tallies.items() if tally.lost} == {name}


@pytest.mark.parametrize("name", [each.name for each in RECIPIENTS])
@pytest.mark.parametrize(("one", "other"), [(0, 2), (2, 4), (1, 3), (3, 5), (4, 6)])
def test_changes_of_one_document_in_the_wrong_order_are_found(
    one: int, other: int, name: str
) -> None:
    swapped = list(STREAM)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    found = account(process(STREAM, "g", **{name: swapped}))
    assert {each.kind for each in found.complaints} == {Kind.ORDER}
    assert {each for each, tally in found.tallies.items() if tally.disordered} == {name}


def test_changes_that_the_server_has_in_another_order_are_found() -> None:
    """The order of the tokens is not that in which they were written."""
    swapped = [STREAM[0]._replace(token="c"), STREAM[2]._replace(token="a")]
    stream = sorted([*swapped, STREAM[1], *STREAM[3:]])
    assert "insert 1 of document 1 never arrived" in complaints(process(stream, "g"))


def test_a_change_that_is_skipped_and_comes_later_is_found() -> None:
    """Nothing is missing in the end, and yet a crash in between would have lost it."""
    late = [*STREAM[:3], *STREAM[4:], STREAM[3]]
    assert complaints(process(STREAM, "g", sequence=late))[0] == (
        "sequence: 1 changes are skipped before delete of document 1"
    )


def test_a_gap_in_what_comes_again_is_found() -> None:
    gap = process(STREAM[3:], "g", owner=STREAM[5:], sequence=[STREAM[3], *STREAM[5:]])
    assert complaints(KILLED, gap) == [
        "sequence: 1 changes are skipped before update 3 of document 2"
    ]


def test_a_change_from_before_the_checkpoint_is_found() -> None:
    repeats = process(STREAM[3:], "g", owner=STREAM[5:], sequence=STREAM[2:])
    assert complaints(KILLED, repeats) == [
        "sequence: update 2 of document 1 came again after a kill, from before the checkpoint"
    ]


def test_a_restart_from_before_the_checkpoint_of_this_process_is_found() -> None:
    back = process(
        STREAM[3:], "g", owner=STREAM[5:], sequence=[*STREAM[3:5], *STREAM[1:]], starts=2
    )
    assert len(complaints(KILLED, back, kind=Kind.AGAIN)) == 2


class TestAgain:
    CLEAN = process(STREAM[:5], "e", clean=True)

    def test_nothing_after_a_clean_stop(self) -> None:
        after = process(STREAM[5:], "g")
        assert complaints(self.CLEAN, after) == []

    def test_one_change_after_a_clean_stop(self) -> None:
        after = process(STREAM[5:], "g", parallel=STREAM[4:])
        found = account(self.CLEAN, after)
        assert [each.kind for each in found.complaints] == [Kind.AGAIN]
        assert found.tallies["parallel"].after_stops == 1

    def test_what_was_not_handled_at_a_clean_stop_comes_behind_it(self) -> None:
        """It waited for its next attempt; what was behind it, and what stood by, had come."""
        waiting = process(STREAM[:5], "c", clean=True, sequence=STREAM[:3])
        after = process(STREAM[5:], "g", sequence=STREAM[3:])
        assert complaints(waiting, after) == []

    def test_a_kill_before_a_clean_stop_does_not_excuse_what_came_in_between(self) -> None:
        stopped = process(STREAM[3:5], "d", owner=[], clean=True)
        rest = process(STREAM[5:], "g")
        assert complaints(KILLED, stopped, rest) == []
        again = process(STREAM[5:], "g", parallel=STREAM[4:])
        assert len(complaints(KILLED, stopped, again, kind=Kind.AGAIN)) == 1

    def test_a_clean_stop_before_it_came_again_does_not_count(self) -> None:
        """It is still the kill that it comes again for."""
        stopped = process([STREAM[3]], "d", owner=[], clean=True)
        rest = process(STREAM[4:], "g", owner=STREAM[5:])
        found = account(KILLED, stopped, rest)
        assert found.complaints == []
        assert found.tallies["sequence"].after_kills == 2

    def test_anything_at_a_handler_that_owns_its_position(self) -> None:
        after = process(STREAM[3:], "g", owner=STREAM[4:])
        assert complaints(KILLED, after) == [
            "owner: delete of document 1 came again after a kill",
        ]
        twice = process([*STREAM[:5], *STREAM[3:]], "g", starts=2)
        assert len(complaints(twice)) == 2


def test_a_change_that_comes_twice_is_found() -> None:
    twice = [*STREAM[:4], *STREAM[3:]]
    assert complaints(process(STREAM, "g", sequence=twice)) == [
        "sequence: it went back to replace 2 of document 2 without a restart"
    ]
    assert complaints(process(STREAM, "g", parallel=twice)) != []


def test_a_change_that_was_never_written_is_found() -> None:
    extra = [*STREAM, Arrival("h", 2, "update", 4)]
    found = complaints(process(extra, "h"), kind=Kind.CONTENT)
    assert found == ["update 4 of document 2 was never written, or not there"]
    elsewhere = [*STREAM, Arrival("h", 9, "insert", 1)]
    assert any("document 9" in text for text in complaints(process(elsewhere, "h")))


def test_one_token_with_two_meanings_is_found() -> None:
    other = [STREAM[3]._replace(number=9), *STREAM[4:]]
    found = complaints(KILLED, process(other, "g"), kind=Kind.CONTENT)
    assert found[0] == (
        "sequence: replace 9 of document 2 was replace 2 of document 2 elsewhere or before"
    )


def test_changes_of_one_document_at_once_are_found() -> None:
    """The handler says so by the operation."""
    overlapping = [*STREAM[:3], STREAM[3]._replace(operation="overlapping replace"), *STREAM[4:]]
    found = complaints(process(STREAM, "g", parallel=overlapping))
    assert len(found) == 1
    assert "overlapping replace 2 of document 2" in found[0]


class TestCheckpoints:
    @pytest.mark.parametrize("name", [each.name for each in RECIPIENTS])
    def test_ahead_of_a_handler(self, name: str) -> None:
        ahead = process(STREAM[:5], "d", **{name: STREAM[:3]})
        after = process(STREAM[4:], "g", **{"owner": STREAM[5:], name: STREAM[3:]})
        assert complaints(ahead, after) == [
            f"{name}: the checkpoint passed replace 2 of document 2"
        ]

    def test_that_goes_back(self) -> None:
        back = process([], "a", starts=0)
        assert "the checkpoint went back from change 3 to 1" in complaints(KILLED, back, AFTER)

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

    processes, begin, had = [], 0, 0
    for _ in range(draw(st.integers(0, 4))):
        end = draw(st.integers(begin, len(STREAM)))
        clean = draw(st.booleans())
        behind = end if clean else draw(st.integers(begin, end))
        token = STREAM[behind - 1].token if behind else None
        owner = STREAM[had : max(had, end)]
        processes.append(process(STREAM[begin:end], token, owner=owner, clean=clean))
        begin, had = behind, max(had, end)
    processes.append(process(STREAM[begin:], "g", owner=STREAM[had:], clean=True))
    assert complaints(*processes) == []

    # A process that lacks its last change only ended sooner, and its first one may have come
    # before; any other is a gap.
    long = [n for n, each in enumerate(processes) if each.arrivals["sequence"][2:]]
    if long:
        chosen = draw(st.sampled_from(long))
        arrivals = dict(processes[chosen].arrivals)
        whole = list(arrivals["sequence"])
        del whole[draw(st.integers(1, len(whole) - 2))]
        old = processes[chosen]
        processes[chosen] = Process(
            {**arrivals, "sequence": whole}, old.checkpoint, old.starts, old.clean
        )
        assert complaints(*processes)


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
