"""What is shown of a scope's snapshot is what the handler has that has least of it."""

from dataclasses import replace

import pytest
from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import ObservedSnapshot
from tailrace.engine.status.scope_snapshot import scope_snapshot
from tailrace.engine.status.snapshot_status import as_handled, least
from tailrace.engine.status.status import Status
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import RangeProgress, RangeState, SnapshotMode, SnapshotState
from tailrace.observe.handler_recorder import HandlerRecorder
from tests.unit.engine.changes import checkpoint


def progress(documents: int = 0, id: str = "s", *, over: bool = False) -> SnapshotProgress:
    of_range = RangeState.DONE if over else RangeState.READING
    ranges = {"u": RangeProgress("u", "shop", "orders", 9, documents=documents, state=of_range)}
    state = SnapshotState.DONE if over else SnapshotState.READING
    return SnapshotProgress(id, SnapshotMode.INITIAL, state, ranges=ranges)


DONE, OTHER = progress(9, over=True), progress(9, "of another handler", over=True)
BEGUN = replace(DONE, began=Timestamp(5, 1))
LATER, EARLIER = replace(OTHER, began=Timestamp(6, 1)), replace(OTHER, began=Timestamp(4, 1))
CASES = {
    "one has had a later one of its own": (BEGUN, {"a": LATER, "b": BEGUN}, ("a",), "done"),
    "one has an earlier one so far": (BEGUN, {"a": EARLIER, "b": BEGUN}, ("a",), "reading"),
    "all have it": (DONE, {"a": DONE, "b": DONE}, (), "done"),
    "one has less": (DONE, {"a": DONE, "b": progress(3)}, (), "reading"),
    "one has nothing so far": (DONE, {"a": DONE, "b": None}, ("b",), "reading"),
    "one has not begun": (
        progress(3),
        {"a": progress(3), "b": None},
        (),
        "reading",
    ),
    "one does not get it": (DONE, {"a": None, "b": DONE}, (), "done"),
    "one had its own": (DONE, {"a": OTHER, "b": DONE}, (), "done"),
    "each had its own": (DONE, {"a": OTHER, "b": None}, (), "done"),
    "nobody has it so far": (DONE, {"a": None, "b": None}, ("a", "b"), "reading"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_snapshot_is_over_when_all_have_it_that_get_it(case: str) -> None:
    read, handled, busy, expected = CASES[case]
    seen = ObservedSnapshot(read)
    shown = as_handled(seen, least(seen, handled, busy))
    assert shown is not None
    assert shown.progress.state.value == expected


def of_course(handler: str, had: SnapshotProgress) -> Status:
    """The course of a handler that has so much of a snapshot."""
    recorders = {handler: HandlerRecorder()}
    status = Status(
        Scope("orders", "shop"), recorders=recorders, snapshot=lambda: ObservedSnapshot(had)
    )
    status.stored(checkpoint(1, snapshot=had))
    return status


@pytest.mark.parametrize(
    ("own", "expected"), [(progress(3), "reading"), (DONE, "done"), (OTHER, "done")]
)
def test_a_snapshot_is_not_over_while_a_handler_on_its_own_reads_it(
    own: SnapshotProgress, expected: str
) -> None:
    shared, away = of_course("fast", DONE), of_course("slow", own)
    shared.apart = lambda: {"slow": away}
    shown = scope_snapshot(shared)
    assert shown is not None
    assert shown.progress.state.value == expected


def test_a_snapshot_of_others_is_not_shown_of_a_handler_that_was_away_meanwhile() -> None:
    """It would never be over for it, and no other one could begin."""
    shared = of_course("fast", DONE)
    back = replace(checkpoint(1).last, observed_generation=2)
    shared.stored(checkpoint(1, snapshot=DONE, handlers=("fast",), apart={"slow": back}))
    shown = shared.snapshot_of("fast")
    assert shown is not None
    assert shown.progress is DONE
    assert shared.snapshot_of("slow") is None
