"""Where a scope goes on when the server refuses its position, or its start lies inside an event.

A refused start point is never sent twice. With the policy ``skip`` the position's cluster time is
tried next, which loses nothing (but for a destination whose own position, older than the
checkpoint, was refused), and last of all now, which is a gap.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from bson.timestamp import Timestamp

from tailrace.engine.position.position import Position
from tailrace.engine.position.start_position import StartPosition
from tailrace.engine.scope_plan import ScopePlan
from tailrace.errors import ScopeHalted
from tailrace.model import Checkpoint, StartPoint
from tailrace.model.gap import Gap
from tailrace.model.start import NOW

MOST_SKIPS = 3
"""After so many gaps without one change in between the scope halts: skipping does not help."""


@dataclass
class LostHistory:
    """What one watcher has tried since changes last came."""

    _refused: set[StartPoint] = field(default_factory=set)
    _refusal: str = ""
    _rewound: StartPoint | None = None
    _skips: int = 0

    def progressed(self) -> None:
        """Changes came: what was tried before no longer matters."""
        self._refused.clear()
        self._rewound = None
        self._skips = 0

    def refused(self, start: StartPoint, why: str) -> None:
        """The server will never accept this start point again."""
        self._refused.add(start)
        self._refusal = why

    def rewind(self, time: Timestamp) -> bool:
        """Begin before the event at ``time``; says no if that has been tried."""
        tried, self._rewound = self._rewound, StartPoint(at_operation_time=time)
        return self._rewound != tried

    def start(self, position: StartPosition, checkpoint: Checkpoint | None) -> StartPoint | None:
        """The first start point that was not refused; ``None`` if all were."""
        steps, leads = [self._rewound or position.start], position.leads
        if leads is not None and leads.time is not None:
            steps.append(StartPoint(at_operation_time=leads.time))
        if leads is None or leads.time is not None:
            steps += _of_checkpoint(checkpoint)
        return next((step for step in [*steps, NOW] if step not in self._refused), None)

    def gap(
        self,
        start: StartPoint,
        plan: ScopePlan,
        start_position: StartPosition,
        checkpoint: Checkpoint | None,
    ) -> Gap | None:
        """What starting there skips, if anything; :class:`ScopeHalted` where it goes in rounds."""
        if not _skips(start, start_position, checkpoint):
            return None
        self._skips += 1
        if self._skips > MOST_SKIPS:
            raise ScopeHalted(
                f"scope {plan.scope.name!r}: its history was lost {MOST_SKIPS} times without one "
                f"change in between: {self._refusal}. Look at the size of the server's oplog, then "
                "restart"
            )
        position = Position.behind(checkpoint, plan.start)
        token, since = position.high_water or position.event_token, position.cluster_time
        if start_position.leads is not None:
            token, since = start_position.leads.token, start_position.leads.time
        now, reason = datetime.now(UTC), self._refusal
        return Gap(plan.scope.name, token, since, None, reason, policy="skip", recorded_at=now)


def _skips(start: StartPoint, start_position: StartPosition, checkpoint: Checkpoint | None) -> bool:
    """Whether changes are skipped for anybody by starting there."""
    if start == NOW:
        return start_position.start != NOW
    if start == start_position.start or start_position.leads is None or checkpoint is None:
        return False
    # The checkpoint's own time: a destination that lay before it misses what is in between.
    leads, at = start_position.leads.time, checkpoint.cluster_time
    older = leads is None or at is None or leads < at
    return older and start in _of_checkpoint(checkpoint)


def _of_checkpoint(checkpoint: Checkpoint | None) -> list[StartPoint]:
    if checkpoint is None:
        return []
    time = checkpoint.cluster_time
    at_time = [StartPoint(at_operation_time=time)] if time is not None else []
    return [checkpoint.start_point, *at_time]
