"""A checkpoint: how far a scope's changes have been handled, and who wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar

from tailrace.model.position import Position, PositionKind
from tailrace.model.record_codec import INLINE
from tailrace.model.start import StartPoint
from tailrace.model.stored_record import StoredRecord


@dataclass(frozen=True, slots=True)
class Checkpoint(StoredRecord):
    """Everything needed to continue exactly after the last handled change.

    ``epoch`` counts owners and ``sequence`` an owner's writes: stores refuse a write that is not
    newer in this order. ``obeyed`` is the number of the last operator's order whose position it has
    taken (:class:`tailrace.model.order.Order`). ``halted``: why the scope is halted, until it runs
    again; empty if it is not.
    """

    NAME: ClassVar = "checkpoint"
    REMEDY: ClassVar = (
        "choose a new position with 'tailrace checkpoints set' or 'tailrace checkpoints reset'"
    )

    scope: str
    position: Position = field(metadata=INLINE)
    cluster: str
    fingerprint: str
    epoch: int
    sequence: int
    saved_at: datetime
    obeyed: int = 0
    halted: str = ""

    @classmethod
    def nowhere(cls, scope: str) -> Checkpoint:
        """The record of a scope without a position. The owner sets epoch and sequence."""
        position = Position(PositionKind.RESET, None, None, None)
        return cls(scope, position, "", "", 0, 0, datetime.now(UTC))

    @property
    def order(self) -> tuple[int, int]:
        """The pair that a conditional write compares."""
        return self.epoch, self.sequence

    @property
    def is_reset(self) -> bool:
        """Whether it only fences: the scope starts as if it had no checkpoint."""
        return self.position.kind is PositionKind.RESET

    def check(self) -> None:
        if min(*self.order, self.obeyed) < 0:
            raise ValueError("epoch and sequence must not be negative, nor obeyed")
        if self.position.start_point == StartPoint() and not self.is_reset:
            raise ValueError("it holds neither a token nor a time")
