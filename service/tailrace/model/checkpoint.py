"""A checkpoint: how far a scope's changes have been handled, and who wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar

from bson.timestamp import Timestamp

from tailrace.model.progress import Progress
from tailrace.model.snapshot import SnapshotProgress
from tailrace.model.start import StartPoint
from tailrace.model.stored_record import StoredRecord
from tailrace.model.token import ResumeToken

CHOSEN = "*"
"""In ``sink_digests``: an operator chose this position, and not those of the destinations."""


class CheckpointKind(StrEnum):
    """What the position refers to."""

    EVENT = "event"
    IDLE = "idle"
    """No event: the post-batch token of an empty batch, or a time before the first token."""
    INVALIDATE = "invalidate"
    """The token of an invalidate event, or possibly of one: only ``startAfter`` accepts it."""
    RESET = "reset"
    """No position: an operator reset it. Its order fences the process that follows the scope."""


def progress(
    kind: CheckpointKind,
    event_token: ResumeToken | None,
    high_water: ResumeToken | None,
    cluster_time: Timestamp | None,
) -> Progress:
    """What every handler has at a position. Its time is that of the event or of the idle token."""
    if kind is CheckpointKind.EVENT:
        return Progress(event_token or high_water, cluster_time)
    return Progress(high_water or event_token, cluster_time)


@dataclass(frozen=True, slots=True)
class Checkpoint(StoredRecord):
    """Everything needed to continue exactly after the last handled change.

    ``event_token``: the token of the last handled event. ``high_water``: where to resume (the
    post-batch token if there is one, else the event's). ``cluster_time``: used when neither token
    is usable. ``epoch`` counts owners and ``sequence`` an owner's writes: stores refuse a write
    that is not newer in this order.

    ``sink_digests``: for each handler with a position of its own, the digest of the token that its
    destination has stored if it has exactly what it was given up to here. ``beyond``: what other
    handlers have beyond this position, which is not delivered to them again. ``snapshot``: how far
    the existing documents are delivered, if the scope has had a snapshot.
    """

    NAME: ClassVar = "checkpoint"
    REMEDY: ClassVar = (
        "choose a new position with 'tailrace checkpoints set' or 'tailrace checkpoints reset'"
    )

    scope: str
    kind: CheckpointKind
    event_token: ResumeToken | None
    high_water: ResumeToken | None
    cluster_time: Timestamp | None
    cluster: str
    fingerprint: str
    epoch: int
    sequence: int
    saved_at: datetime
    sink_digests: Mapping[str, str] = field(default_factory=dict)
    beyond: Mapping[str, Progress] = field(default_factory=dict)
    snapshot: SnapshotProgress | None = None

    @classmethod
    def nowhere(cls, scope: str) -> Checkpoint:
        """The record of a scope without a position. The owner sets epoch and sequence."""
        return cls(
            scope=scope,
            kind=CheckpointKind.RESET,
            event_token=None,
            high_water=None,
            cluster_time=None,
            cluster="",
            fingerprint="",
            epoch=0,
            sequence=0,
            saved_at=datetime.now(UTC),
        )

    @property
    def progress(self) -> Progress:
        """What every handler has."""
        return progress(self.kind, self.event_token, self.high_water, self.cluster_time)

    @property
    def order(self) -> tuple[int, int]:
        """The pair that a conditional write compares."""
        return self.epoch, self.sequence

    @property
    def is_reset(self) -> bool:
        """Whether it only fences: the scope starts as if it had no checkpoint."""
        return self.kind is CheckpointKind.RESET

    @property
    def start_point(self) -> StartPoint:
        """Where the stream continues, with the same pipeline and options."""
        if self.kind is CheckpointKind.INVALIDATE:
            return StartPoint(start_after=self.high_water or self.event_token)
        token = self.high_water or self.event_token
        if token is not None:
            return StartPoint(resume_after=token)
        return StartPoint(at_operation_time=self.cluster_time)

    def check(self) -> None:
        if min(self.order) < 0:
            raise ValueError("epoch and sequence must not be negative")
        if self.start_point == StartPoint() and not self.is_reset:
            raise ValueError("it holds neither a token nor a time")
