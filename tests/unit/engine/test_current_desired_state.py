"""What a course is told of the desired state."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace.engine.current_desired_state import CurrentDesiredState
from tailrace.model.desired_state import DesiredHandler, DesiredState
from tailrace.model.snapshot import SnapshotRequest

REQUEST = SnapshotRequest("s", new=True)
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
    current.request_snapshot(to, ["index"], lambda handler: 5)
    current.request_snapshot(to, ["index", "audit"], lambda handler: 5)
    assert rows.told == told
