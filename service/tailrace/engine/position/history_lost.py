"""Finds another start if the server refuses a scope's position, or it lies inside a split event.

A refused start point is never sent twice. With the policy ``skip``, the next start point is the
position's cluster time. It loses nothing, unless the refused position was a destination's own and
older than the checkpoint. The last start point is now, which leaves a gap.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from bson.timestamp import Timestamp

from tailrace.engine.plan.scope_plan import ScopePlan
from tailrace.engine.position.start_position import StartPosition, position_at
from tailrace.errors import ScopeHalted
from tailrace.model import Checkpoint, StartPoint
from tailrace.model.gap import Gap
from tailrace.model.start import NOW

MOST_SKIPS = 3
"""After this many gaps without a change in between, the scope halts: skipping does not help."""


@dataclass
class LostHistory:
    """The start points that one watcher has tried since changes last came."""

    _refused: set[StartPoint] = field(default_factory=set)
    _refusal: str = ""
    _restored: bool = False
    _rewound: StartPoint | None = None
    _skips: int = 0

    def progressed(self) -> None:
        """Changes came: forgets what was tried before."""
        self._refused.clear()
        self._restored = False
        self._rewound = None
        self._skips = 0

    def refused(self, start: StartPoint, why: str, *, restored: bool = False) -> None:
        """Notes that the server will never accept this start point.

        ``restored``: nor any other one, as they are of the history before the source's restore.
        """
        self._refused.add(start)
        self._refusal, self._restored = why, restored

    def rewind(self, time: Timestamp) -> bool:
        """Lets the next run start before the event at ``time``; False if it has been tried."""
        tried, self._rewound = self._rewound, StartPoint(at_operation_time=time)
        return self._rewound != tried

    def start(self, position: StartPosition, checkpoint: Checkpoint | None) -> StartPoint | None:
        """The first start point that was not refused; ``None`` if all were."""
        if self._restored:
            return NOW
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
        """The gap that this start leaves, if any; raises :class:`ScopeHalted` after too many."""
        if not _skips(start, start_position, checkpoint):
            return None
        self._skips += 1
        if self._skips > MOST_SKIPS:
            raise ScopeHalted(
                f"scope {plan.scope.name!r}: its history was lost {MOST_SKIPS} times without one "
                f"change in between: {self._refusal}. Look at the size of the server's oplog, then "
                f"'tailrace scopes restart {plan.scope.name}'"
            )
        position = position_at(checkpoint, plan.start)
        token, since = position.token, position.cluster_time
        if start_position.leads is not None:
            token, since = start_position.leads.token, start_position.leads.time
        now, reason = datetime.now(UTC), self._refusal
        return Gap(plan.scope.name, token, since, None, reason, policy="skip", recorded_at=now)


def _skips(start: StartPoint, start_position: StartPosition, checkpoint: Checkpoint | None) -> bool:
    """Whether this start skips changes for any handler."""
    if start == NOW:
        return start_position.start != NOW
    if start == start_position.start or start_position.leads is None or checkpoint is None:
        return False
    # The checkpoint's own position: a destination that was older misses the changes in between.
    leads, at = start_position.leads.time, checkpoint.position.cluster_time
    older = leads is None or at is None or leads < at
    return older and start in _of_checkpoint(checkpoint)


def _of_checkpoint(checkpoint: Checkpoint | None) -> list[StartPoint]:
    if checkpoint is None:
        return []
    time = checkpoint.position.cluster_time
    at_time = [StartPoint(at_operation_time=time)] if time is not None else []
    return [checkpoint.position.start_point, *at_time]
