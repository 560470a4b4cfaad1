"""The account of the chaos suite finds everything that it must find."""

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.faults.chaos.account import Account, Kind, examine
from tests.faults.chaos.history import (
    Arrival,
    Change,
    Process,
    Recipient,
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
# Documents may overtake one another; each one keeps its own order.
PARALLEL = [STREAM[n] for n in (1, 0, 3, 5, 2, 4, 6)]
RECIPIENTS = [
    Recipient("sequence", sequence=True),
    Recipient("parallel", sequence=False),
    Recipient("owner", sequence=True, owns=True),
]
NAMES = pytest.mark.parametrize("name", [each.name for each in RECIPIENTS])


def process(stream: Sequence[Arrival], checkpoint: str | None, **more: Any) -> Process:
    """A process in which each handler received the stream, except for those named in ``more``."""
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
CLEAN = process(STREAM[:5], "e", clean=True)
SWAPPED = [STREAM[2]._replace(token="a"), STREAM[1], STREAM[0]._replace(token="c"), *STREAM[3:]]
TWICE = [*STREAM[:5], *STREAM[3:6], *STREAM[3:]]


@pytest.mark.parametrize(
    "processes",
    [
        [WHOLE],
        [KILLED, AFTER],
        [KILLED, process(STREAM[5:], "g", parallel=AFTER.arrivals["parallel"])],
        [process(STREAM[:5], "c5", parallel=STREAM[:5]), AFTER],
        [process([], None), WHOLE],
        [KILLED, process([], "c", starts=0), AFTER],
        [process(TWICE, "g", starts=3, owner=STREAM)],
        [CLEAN, process(STREAM[5:], "g")],
        # One event waited for its next attempt at a clean stop; later events had been handled.
        [
            process(STREAM[:5], "c", clean=True, sequence=STREAM[:3]),
            process(STREAM[5:], "g", sequence=STREAM[3:]),
        ],
        # The reason that it comes again is still the kill.
        [
            KILLED,
            process([STREAM[3]], "d", owner=[], clean=True),
            process(STREAM[4:], "g", owner=STREAM[5:]),
        ],
    ],
)
def test_what_arrived_as_promised_is_good(processes: list[Process]) -> None:
    assert complaints(*processes) == []


def test_repetitions_are_counted() -> None:
    found = account(KILLED, AFTER)
    assert found.changes == len(STREAM)
    assert [tally.changes for tally in found.tallies.values()] == [7, 7, 7]
    assert [tally.again for tally in found.tallies.values()] == [2, 1, 0]


@NAMES
@pytest.mark.parametrize("place", range(len(STREAM)))
def test_a_lost_change_is_found(place: int, name: str) -> None:
    """Lost by all handlers, or by one."""
    rest = [*STREAM[:place], *STREAM[place + 1 :]]
    found = account(process(rest, rest[-1].token, clean=True))
    assert any(each.kind is Kind.LOST for each in found.complaints)
    assert all(tally.lost for tally in found.tallies.values())
    found = account(process(STREAM, "a", **{name: rest}))
    lost = [each.text for each in found.complaints if each.kind is Kind.LOST]
    assert [text.split(":")[0] for text in lost] == [name]
    assert {each for each, tally in found.tallies.items() if tally.lost} == {name}


@NAMES
@pytest.mark.parametrize(("one", "other"), [(0, 2), (2, 4), (1, 3), (3, 5), (4, 6)])
def test_changes_of_one_document_in_the_wrong_order_are_found(
    one: int, other: int, name: str
) -> None:
    swapped = list(STREAM)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    found = account(process(STREAM, "g", **{name: swapped}))
    assert {each.kind for each in found.complaints} == {Kind.ORDER}
    assert {each for each, tally in found.tallies.items() if tally.disordered} == {name}


@pytest.mark.parametrize(
    ("processes", "message"),
    [
        (  # nothing is missing in the end, but a crash in between would have lost it
            [process(STREAM, "g", sequence=[*STREAM[:3], *STREAM[4:], STREAM[3]])],
            "sequence: 1 changes are skipped before delete of document 1",
        ),
        (
            [KILLED, process(STREAM[3:], "g", owner=STREAM[5:], sequence=[STREAM[3], *STREAM[5:]])],
            "sequence: 1 changes are skipped before update 3 of document 2",
        ),
        (
            [process(TWICE, "g", starts=2, owner=STREAM)],
            "sequence: it went back to replace 2 of document 2 without a restart",
        ),
        (
            [KILLED, process(STREAM[3:], "g", owner=STREAM[5:], sequence=STREAM[2:])],
            "sequence: update 2 of document 1 came again after a kill, from before the checkpoint",
        ),
        (
            [CLEAN, process(STREAM[5:], "g", parallel=STREAM[4:])],
            "parallel: delete of document 1 came again after a clean stop",
        ),
        (  # a kill before the clean stop does not excuse changes that came in between
            [
                KILLED,
                process(STREAM[3:5], "d", owner=[], clean=True),
                process(STREAM[5:], "g", parallel=STREAM[4:]),
            ],
            "parallel: delete of document 1 came again after a clean stop",
        ),
        (
            [KILLED, process(STREAM[3:], "g", owner=STREAM[4:])],
            "owner: delete of document 1 came again after a kill",
        ),
        (
            [process([*STREAM, Arrival("h", 2, "update", 4)], "h")],
            "update 4 of document 2 was never written, or not there",
        ),
        (  # the order of the tokens is not the order of the writes
            [process(SWAPPED, "g")],
            "insert 1 of document 1 never arrived",
        ),
        (
            [KILLED, process([STREAM[3]._replace(number=9), *STREAM[4:]], "g")],
            "sequence: replace 9 of document 2 was replace 2 of document 2 elsewhere or before",
        ),
        (
            [
                process(STREAM[:5], "d", sequence=STREAM[:3]),
                process(STREAM[4:], "g", owner=STREAM[5:], sequence=STREAM[3:]),
            ],
            "sequence: the checkpoint passed replace 2 of document 2",
        ),
        (
            [KILLED, process([], "a", starts=0), AFTER],
            "the checkpoint went back from change 3 to 1",
        ),
    ],
)
def test_a_broken_guarantee_is_reported(processes: list[Process], message: str) -> None:
    assert any(message in each for each in complaints(*processes))


def test_changes_of_one_document_at_once_are_found() -> None:
    """The handler reports it as the operation."""
    overlapping = [*STREAM[:3], STREAM[3]._replace(operation="overlapping replace"), *STREAM[4:]]
    (found,) = complaints(process(STREAM, "g", parallel=overlapping))
    assert "overlapping replace 2 of document 2" in found


@given(st.data())
def test_any_kills_with_an_honest_replay_are_good_and_a_dropped_event_never(
    data: st.DataObject,
) -> None:
    processes, begin, had = [], 0, 0
    for _ in range(data.draw(st.integers(0, 4))):
        end = data.draw(st.integers(begin, len(STREAM)))
        clean = data.draw(st.booleans())
        behind = end if clean else data.draw(st.integers(begin, end))
        token = STREAM[behind - 1].token if behind else None
        owner = STREAM[had : max(had, end)]
        processes.append(process(STREAM[begin:end], token, owner=owner, clean=clean))
        begin, had = behind, max(had, end)
    processes.append(process(STREAM[begin:], "g", owner=STREAM[had:], clean=True))
    assert complaints(*processes) == []

    # A process that lacks its last change only ended sooner, and one that lacks its first may have
    # received it before; any other missing change is a gap.
    long = [n for n, each in enumerate(processes) if each.arrivals["sequence"][2:]]
    if long:
        chosen = data.draw(st.sampled_from(long))
        old = processes[chosen]
        whole = list(old.arrivals["sequence"])
        del whole[data.draw(st.integers(1, len(whole) - 2))]
        arrivals = {**old.arrivals, "sequence": whole}
        processes[chosen] = Process(arrivals, old.checkpoint, old.starts, old.clean)
        assert complaints(*processes)
