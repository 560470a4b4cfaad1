"""A position in the stream before which everything is handled: the content of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent
from tailrace.event.batch import LastEvent
from tailrace.model import (
    Checkpoint,
    CheckpointKind,
    Progress,
    ResumeToken,
    SnapshotProgress,
    StartPoint,
)
from tailrace.model.checkpoint import progress


@dataclass(frozen=True, slots=True)
class Position:
    """``sink_digests``, ``beyond``, ``snapshot``: as in :class:`tailrace.model.Checkpoint`."""

    kind: CheckpointKind
    event_token: ResumeToken | None
    high_water: ResumeToken | None
    cluster_time: Timestamp | None
    sink_digests: Mapping[str, str] = field(default_factory=dict)
    beyond: Mapping[str, Progress] = field(default_factory=dict)
    snapshot: SnapshotProgress | None = None

    @property
    def progress(self) -> Progress:
        """What every handler has."""
        return progress(self.kind, self.event_token, self.high_water, self.cluster_time)

    @classmethod
    def at_start(cls, checkpoint: Checkpoint | None, start: StartPoint) -> Position:
        """The position before a run's first reply.

        After a possible invalidate its kind is ``INVALIDATE``: only ``startAfter`` can continue.
        """
        kind = checkpoint.kind if checkpoint is not None else CheckpointKind.IDLE
        if start.start_after is not None:
            kind = CheckpointKind.INVALIDATE
        if checkpoint is None:
            return cls(kind, None, None, start.at_operation_time)
        return cls(kind, checkpoint.event_token, checkpoint.high_water, checkpoint.cluster_time)

    @property
    def has_token(self) -> bool:
        """Whether the position has a token from which a stream can continue."""
        return self.high_water is not None or self.event_token is not None

    def after_event(
        self,
        event: LastEvent,
        noted: Mapping[str, str],
        token: ResumeToken | None = None,
        *,
        invalidated: bool = False,
    ) -> Position:
        """The position when everything up to an event is handled.

        ``token``: where the stream stood after the event, or ended.
        """
        kind = CheckpointKind.EVENT
        if invalidated or event.operation == "invalidate":
            kind = CheckpointKind.INVALIDATE
        sink_digests = {**self.sink_digests, **noted} if noted else self.sink_digests
        time = event.time or self.cluster_time
        after = token or event.token
        return Position(kind, event.token, after, time, sink_digests, self.beyond, self.snapshot)

    def after_bookmark(
        self, token: ResumeToken | None, time: Timestamp | None, *, invalidated: bool
    ) -> Position:
        """The position after a bookmark; unchanged if the bookmark is known to be older."""
        if token is None:
            known = self.high_water is not None or self.cluster_time is not None
            return self if known else replace(self, cluster_time=time)
        # Until an event comes, a stream after an invalidate can continue only by `startAfter`.
        invalidated = invalidated or self.kind is CheckpointKind.INVALIDATE
        if self.high_water is not None and (
            token == self.high_water or token.precedes(self.high_water)
        ):
            return replace(self, kind=CheckpointKind.INVALIDATE) if invalidated else self
        kind = CheckpointKind.INVALIDATE if invalidated else CheckpointKind.IDLE
        time = token.cluster_time or self.cluster_time
        return replace(self, kind=kind, high_water=token, cluster_time=time)

    def without_passed(self, noted: Mapping[str, str]) -> Position:
        """Without the progress of single handlers that the position has passed."""
        at = self.progress
        beyond = {
            name: progress
            for name, progress in self.beyond.items()
            if name not in noted and not progress.is_passed_by(at.token, at.cluster_time)
        }
        return replace(self, beyond=beyond) if len(beyond) < len(self.beyond) else self


class HandledBefore:
    """Removes the events that a handler has already, by its progress; once it is ``over``, none.

    It may be unknown whether events with the position's own cluster time (a transaction's) come
    before or after it. With ``waits``, the handler gets none of these until the position's own
    event has come. Otherwise it gets them: a repeated event is better than a lost one.
    """

    def __init__(self, progress: Progress, *, waits: bool) -> None:
        self._progress = progress
        self._waits = waits
        self._handled = set(progress.handled)
        self._passed = False

    @property
    def over(self) -> bool:
        """Whether no further event has to be removed."""
        return self._passed and not self._handled

    @property
    def expected(self) -> tuple[frozenset[str], Timestamp | None]:
        """Digests of handled single events that have not come yet, and the last one's time."""
        return frozenset(self._handled), self._progress.until

    def ends_by(self, time: Timestamp) -> bool:
        """Whether every event to remove is known to be no later than ``time``."""
        progress = self._progress
        if self._handled and (progress.until is None or progress.until > time):
            return False
        at = progress.cluster_time or (progress.token and progress.token.cluster_time)
        return at <= time if at is not None else progress.token is None

    def of(self, events: list[ChangeEvent]) -> list[ChangeEvent]:
        """The events that the handler does not have."""
        return [event for event in events if self.over or not self._has(event)]

    def _has(self, event: ChangeEvent) -> bool:
        token = event.token
        time = event.cluster_time or token.cluster_time
        if not self._passed:
            covered = self._progress.covers(token, time)
            if covered is not None:
                self._passed = not covered or token == self._progress.token
            if covered or (covered is None and self._waits):
                return True
        until = self._progress.until
        if until is not None and time is not None and time > until:
            self._handled.clear()
        if not self._handled or token.digest not in self._handled:
            return False
        self._handled.remove(token.digest)
        return True
