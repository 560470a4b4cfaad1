"""A checkpoint: how far a scope's changes have been handled, and whose word that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from bson.timestamp import Timestamp

from tailrace.errors import CheckpointCorrupt
from tailrace.model import record_fields
from tailrace.model.progress import Progress
from tailrace.model.start import StartPoint
from tailrace.model.token import ResumeToken

FORMAT = 1
"""The version of the stored record. A store never guesses at another one."""

CHOSEN = "*"
"""In ``owned``: an operator chose this position, whatever destinations say of theirs."""


class CheckpointKind(StrEnum):
    """What the position is the position of."""

    EVENT = "event"
    IDLE = "idle"
    """No event: a post-batch token of an empty batch, or a time before the first token."""
    INVALIDATE = "invalidate"
    """The token of an invalidate event, or one that may be: only ``startAfter`` accepts it."""
    RESET = "reset"
    """No position: an operator has taken it away. Its order fences whoever followed the scope."""


def progress(
    kind: CheckpointKind,
    event_token: ResumeToken | None,
    high_water: ResumeToken | None,
    cluster_time: Timestamp | None,
) -> Progress:
    """What every handler has at a position: its time is the event's, or that of the idle token."""
    if kind is CheckpointKind.EVENT:
        return Progress(event_token or high_water, cluster_time)
    return Progress(high_water or event_token, cluster_time)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything needed to go on exactly behind the last change that was handled.

    ``event_token`` is that of the last handled event; ``high_water`` is where to resume (the
    post-batch token where there is one, else the event's). ``cluster_time`` is the way back when
    neither token can be used. ``epoch`` counts owners and ``sequence`` an owner's writes: stores
    refuse a write that is not newer in that order.

    ``owned`` notes, for each handler that owns its position, the digest of the token that its
    destination is at if it has just what it was given up to here. ``ahead`` notes which other
    handlers have more than that, and how much: what they have is not handed to them again.
    """

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
    owned: Mapping[str, str] = field(default_factory=dict)
    ahead: Mapping[str, Progress] = field(default_factory=dict)

    @classmethod
    def nowhere(cls, scope: str) -> Checkpoint:
        """The record of a scope that has no position; whoever stores it says as which owner."""
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
        """What a conditional write compares."""
        return self.epoch, self.sequence

    @property
    def is_reset(self) -> bool:
        """Whether it is only there to fence: the scope begins as if it were not."""
        return self.kind is CheckpointKind.RESET

    @property
    def start_point(self) -> StartPoint:
        """How the stream goes on from here, with the same pipeline and options."""
        if self.kind is CheckpointKind.INVALIDATE:
            return StartPoint(start_after=self.high_water or self.event_token)
        token = self.high_water or self.event_token
        if token is not None:
            return StartPoint(resume_after=token)
        return StartPoint(at_operation_time=self.cluster_time)

    def to_document(self) -> dict[str, Any]:
        """The record that stores keep: JSON types only. :meth:`from_document` reads it."""
        ahead = {name: progress.to_document() for name, progress in self.ahead.items()}
        return {
            "format": FORMAT,
            "scope": self.scope,
            "kind": self.kind.value,
            "event_token": self.event_token and self.event_token.to_json(),
            "high_water": self.high_water and self.high_water.to_json(),
            "cluster_time": record_fields.time_parts(self.cluster_time),
            "cluster": self.cluster,
            "fingerprint": self.fingerprint,
            "epoch": self.epoch,
            "sequence": self.sequence,
            "saved_at": self.saved_at.astimezone(UTC).isoformat(),
            **({"owned": dict(self.owned)} if self.owned else {}),
            **({"ahead": ahead} if ahead else {}),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, where: str) -> Checkpoint:
        """Reads a stored record; ``where`` names it in the error (store, scope).

        Raises :class:`CheckpointCorrupt` for anything that :meth:`to_document` cannot have
        written: a wrong position is worse than none.
        """
        try:
            record_fields.require_format(document, FORMAT)
            checkpoint = cls(
                scope=record_fields.typed(document, "scope", str),
                kind=CheckpointKind(record_fields.typed(document, "kind", str)),
                event_token=record_fields.token(document, "event_token"),
                high_water=record_fields.token(document, "high_water"),
                cluster_time=record_fields.time(document, "cluster_time"),
                cluster=record_fields.typed(document, "cluster", str),
                fingerprint=record_fields.typed(document, "fingerprint", str),
                epoch=record_fields.count(document, "epoch"),
                sequence=record_fields.count(document, "sequence"),
                saved_at=record_fields.moment(document, "saved_at"),
                owned=record_fields.texts(document, "owned"),
                ahead={
                    name: Progress.from_document(record)
                    for name, record in record_fields.records(document, "ahead").items()
                },
            )
            if checkpoint.start_point == StartPoint() and not checkpoint.is_reset:
                raise ValueError("it holds neither a token nor a time")
        except (KeyError, ValueError) as error:
            raise unreadable(where, record_fields.fault(error)) from error
        return checkpoint


def unreadable(where: str, reason: str) -> CheckpointCorrupt:
    """The error for a record that is no checkpoint: ``where`` is its store and scope."""
    return CheckpointCorrupt(
        f"{where}: the checkpoint cannot be read: {reason}. Nothing was changed. Restore the "
        "store from a backup, or choose a new position with 'tailrace checkpoints set' or "
        "'tailrace checkpoints reset'"
    )
