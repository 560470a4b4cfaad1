"""What a course is told of the desired state."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace.engine.current_desired_state import CurrentDesiredState
from tailrace.model.desired_state import DesiredHandler, DesiredState
from tailrace.model.snapshot import (
    SnapshotMode,
    SnapshotProgress,
    SnapshotRequest,
    SnapshotState,
)

REQUEST = SnapshotRequest("s", new=True)
STORED = SnapshotProgress("former", SnapshotMode.REQUESTED, observed_generation=5)
DESIRED = DesiredState("orders", 7, False, "ann", datetime(2026, 11, 30, tzinfo=UTC))


class Rows:
    def __init__(self) -> None:
        self.told: list[int] = []

    def apply(self, generation: int, request: SnapshotRequest) -> None:
        self.told.append(generation)


@pytest.mark.parametrize(("generation", "told"), [(5, []), (6, [6])])
def test_a_snapshot_of_one_handler_is_taken_once(generation: int, told: list[int]) -> None:
    """Also if the others have left it alone on the shared stream, whose snapshot was another."""
    current, rows = CurrentDesiredState("orders"), Rows()
    own = DesiredHandler(snapshot=REQUEST, snapshot_generation=generation)
    current.receive(replace(DESIRED, handlers={"index": own}))
    to: Any = rows
    current.request_snapshot(to, ["index"], lambda handler: STORED)
    current.request_snapshot(to, ["index", "audit"], lambda handler: STORED)
    assert rows.told == told


@pytest.mark.parametrize(
    ("id", "request_new", "state", "wants"),
    [
        ("s", True, SnapshotState.READING, True),
        ("s", True, SnapshotState.DONE, False),
        ("s", False, SnapshotState.CANCELLED, False),
        ("former", True, SnapshotState.DONE, True),
        ("former", False, SnapshotState.READING, False),
    ],
)
def test_a_handler_leaves_only_for_a_snapshot_that_is_not_over(
    id: str, request_new: bool, state: SnapshotState, wants: bool
) -> None:
    """A pause that comes when the snapshot has just ended would be wanted for ever."""
    current = CurrentDesiredState("orders")
    own = DesiredHandler(snapshot=replace(REQUEST, new=request_new), snapshot_generation=6)
    current.receive(replace(DESIRED, handlers={"index": own}))
    assert current.wants_alone("index", replace(STORED, id=id, state=state)) is wants
