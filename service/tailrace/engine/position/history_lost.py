"""Where a scope goes on when the server refuses its position, or its start lies inside an event.

A dead start point is never sent twice. With the policy ``skip`` the watcher goes down a ladder:
the last event's token, the high-water token, the cluster time, and last of all now, which is a
gap. The first three lose nothing, if the server accepts them (but for a destination whose own
position, older than the checkpoint, was refused).
"""

from __future__ import annotations

from datetime import UTC, datetime

from bson.timestamp import Timestamp

from tailrace.engine.position.position import Position
from tailrace.engine.position.start_position import StartPosition
from tailrace.errors import ScopeHalted
from tailrace.model import Checkpoint, CheckpointKind, SinkPosition, StartPoint
from tailrace.model.gap import Gap
from tailrace.model.start import NOW

MOST_SKIPS = 3
"""After so many gaps without one change in between the scope halts: skipping does not help."""


class LostHistory:
    """What one watcher has tried since changes last came."""

    def __init__(self) -> None:
        self._dead: set[StartPoint] = set()
        self._refusal = ""
        self._rewound: StartPoint | None = None
        self._skips = 0

    def progressed(self) -> None:
        """Changes came: what was tried before no longer matters."""
        self._dead.clear()
        self._rewound = None
        self._skips = 0

    def refused(self, start: StartPoint, why: str) -> None:
        """The server will never accept this start point again."""
        self._dead.add(start)
        self._refusal = why

    def rewind(self, time: Timestamp) -> bool:
        """Begin before the event at ``time``; says no if that has been tried."""
        tried, self._rewound = self._rewound, StartPoint(at_operation_time=time)
        return self._rewound != tried

    def start(
        self, start_position: StartPosition, checkpoint: Checkpoint | None
    ) -> StartPoint | None:
        """The beginning, or the first step of the ladder that is not dead; ``None`` if all are."""
        steps = [self._rewound or start_position.start, *_ladder(start_position.leads, checkpoint)]
        return next((step for step in steps if step not in self._dead), None)

    def gap(
        self,
        scope: str,
        start_position: StartPosition,
        checkpoint: Checkpoint | None,
        configured: StartPoint,
    ) -> Gap:
        """What starting now skips. Raises :class:`ScopeHalted` where that goes in rounds."""
        self._skips += 1
        if self._skips > MOST_SKIPS:
            raise ScopeHalted(
                f"scope {scope!r}: its history was lost {MOST_SKIPS} times without one change "
                f"in between: {self._refusal}. Look at the size of the server's oplog, then restart"
            )
        position = Position.behind(checkpoint, configured)
        token, since = position.high_water or position.event_token, position.cluster_time
        if start_position.leads is not None:
            token, since = start_position.leads.token, start_position.leads.time
        return Gap(
            scope=scope,
            token=token,
            since=since,
            until=None,
            reason=self._refusal,
            policy="skip",
            recorded_at=datetime.now(UTC),
        )


def is_gap(start: StartPoint, start_position: StartPosition, checkpoint: Checkpoint | None) -> bool:
    """Whether changes are skipped for anybody by starting there."""
    if start == NOW:
        return start_position.start != NOW
    if start == start_position.start or start_position.leads is None or checkpoint is None:
        return False
    # The checkpoint's own steps: a destination that lay behind it misses what is in between.
    behind, at = start_position.leads.time, checkpoint.cluster_time
    older = behind is None or at is None or behind < at
    return older and start in _ladder(None, checkpoint)


def _ladder(leads: SinkPosition | None, checkpoint: Checkpoint | None) -> list[StartPoint]:
    steps: list[StartPoint] = []
    if leads is not None:
        if leads.time is None:
            return [NOW]
        steps.append(StartPoint(at_operation_time=leads.time))
    if checkpoint is None:
        return [*steps, NOW]
    for token in (checkpoint.event_token, checkpoint.high_water):
        if token is not None:
            if checkpoint.kind is CheckpointKind.INVALIDATE:
                steps.append(StartPoint(start_after=token))
            else:
                steps.append(StartPoint(resume_after=token))
    if checkpoint.cluster_time is not None:
        steps.append(StartPoint(at_operation_time=checkpoint.cluster_time))
    return [*steps, NOW]
