"""Where a scope goes on when the server refuses its position, or its start lies inside an event.

A dead start point is never sent twice. With the policy ``skip`` the watcher goes down a ladder:
the last event's token, the high-water token, the cluster time, and last of all now, which is a
gap. The first three lose nothing, if the server accepts them (but for a destination whose own
position, older than the checkpoint, was refused).
"""

from __future__ import annotations

from bson.timestamp import Timestamp

from tailrace.engine.position.start_position import StartPosition
from tailrace.model import Checkpoint, CheckpointKind, SinkPosition, StartPoint
from tailrace.model.start import NOW

MOST_SKIPS = 3
"""So many gaps without one change in between: skipping does not help, and a person must."""


class LostHistory:
    """What one watcher has tried since changes last came."""

    def __init__(self) -> None:
        self._dead: set[StartPoint] = set()
        self._rewound: StartPoint | None = None
        self._skips = 0

    def progressed(self) -> None:
        """Changes came: what was tried before no longer matters."""
        self._dead.clear()
        self._rewound = None
        self._skips = 0

    def refused(self, start: StartPoint) -> None:
        """The server will never accept this start point again."""
        self._dead.add(start)

    def rewind(self, time: Timestamp) -> bool:
        """Begin before the event at ``time``; says no if that has been tried."""
        tried, self._rewound = self._rewound, StartPoint(at_operation_time=time)
        return self._rewound != tried

    def skipped(self) -> bool:
        """Notes a gap; says whether one more may be made."""
        self._skips += 1
        return self._skips <= MOST_SKIPS

    def start(self, begins: StartPosition, checkpoint: Checkpoint | None) -> StartPoint | None:
        """The beginning, or the first step of the ladder that is not dead; ``None`` if all are."""
        steps = [self._rewound or begins.start, *_ladder(begins.leads, checkpoint)]
        return next((step for step in steps if step not in self._dead), None)


def is_gap(start: StartPoint, begins: StartPosition, checkpoint: Checkpoint | None) -> bool:
    """Whether changes are skipped for anybody by starting there."""
    if start == NOW:
        return begins.start != NOW
    if start == begins.start or begins.leads is None or checkpoint is None:
        return False
    # The checkpoint's own steps: a destination that lay behind it misses what is in between.
    behind, at = begins.leads.time, checkpoint.cluster_time
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
