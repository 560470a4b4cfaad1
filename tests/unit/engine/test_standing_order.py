"""What a course is told of an operator's order."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace.engine.standing_order import StandingOrder
from tailrace.model.order import HandlerOrder, Order
from tailrace.model.snapshot import SnapshotRequest

REQUEST = SnapshotRequest("s", new=True)
ORDER = Order("orders", 7, False, "ann", datetime(2026, 11, 30, tzinfo=UTC))


class Rows:
    def __init__(self) -> None:
        self.told: list[int] = []

    def obey(self, number: int, request: SnapshotRequest) -> None:
        self.told.append(number)


@pytest.mark.parametrize(("asked", "told"), [(5, []), (6, [6])])
def test_a_snapshot_of_one_handler_is_taken_once(asked: int, told: list[int]) -> None:
    """Also if the others have left it alone on the shared stream, whose snapshot was another."""
    standing, rows = StandingOrder("orders"), Rows()
    own = HandlerOrder(snapshot=REQUEST, asked=asked)
    standing.hear(replace(ORDER, handlers={"index": own}))
    to: Any = rows
    standing.tell(to, ["index"], lambda handler: 5)
    standing.tell(to, ["index", "audit"], lambda handler: 5)
    assert rows.told == told
