"""Finds another start if the server refuses a scope's position, or it lies inside a split event.

A refused start point is never sent twice. With the policy ``skip``, the next start point is the
position's cluster time. It loses nothing, unless the refused position was a destination's own and
older than the checkpoint. The last start point is now, which leaves a gap.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from bson.timestamp import Timestamp

from tailrace.engine.position.start_position import StartPosition
from tailrace.errors import ScopeHalted
from tailrace.model import StartPoint
from tailrace.model.gap import Gap
from tailrace.model.start import NOW
from tailrace.model.subscription import Subscription

MOST_SKIPS = 3
"""After this many gaps without a change in between, the scope halts: skipping does not help."""


@dataclass
class LostHistory:
    """The start points that one course has tried since changes last came."""

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

    def skipped(self) -> None:
        """A stream is open that begins after a gap."""
        self._skips += 1

    def rewind(self, time: Timestamp) -> bool:
        """Lets the next run start before the event at ``time``; False if it has been tried."""
        tried, self._rewound = self._rewound, StartPoint(at_operation_time=time)
        return self._rewound != tried

    def start(self, position: StartPosition, stored: Subscription | None) -> StartPoint | None:
        """The first start point that was not refused; ``None`` if all were."""
        if self._restored:
            return NOW
        steps, own = [self._rewound or position.start], position.own
        if own is not None and own.time is not None:
            steps.append(StartPoint(at_operation_time=own.time))
        if own is None or own.time is not None:
            steps += _of_checkpoint(stored)
        return next((step for step in [*steps, NOW] if step not in self._refused), None)

    def gap(
        self,
        start: StartPoint,
        scope: str,
        position: StartPosition,
        stored: Subscription | None,
    ) -> Gap | None:
        """The gap that this start leaves, if any; raises :class:`ScopeHalted` after too many."""
        if not _skips(start, position, stored):
            return None
        if self._skips >= MOST_SKIPS:
            raise ScopeHalted(
                f"scope {scope!r}: its history was lost {MOST_SKIPS} times without one "
                f"change in between: {self._refusal}. Look at the size of the server's oplog, then "
                f"'tailrace scopes restart {scope}'"
            )
        token, since = position.position.token, position.time
        if position.own is not None:
            token, since = position.own.token, position.own.time
        now, reason = datetime.now(UTC), self._refusal
        return Gap(scope, token, since, None, reason, policy="skip", recorded_at=now)


def _skips(start: StartPoint, position: StartPosition, stored: Subscription | None) -> bool:
    """Whether this start skips changes."""
    if start == NOW:
        return position.start != NOW
    if start == position.start or position.own is None or stored is None:
        return False
    # The checkpoint's own position: a destination that was older misses the changes in between.
    own, at = position.own.time, stored.position.cluster_time
    older = own is None or at is None or own < at
    return older and start in _of_checkpoint(stored)


def _of_checkpoint(stored: Subscription | None) -> list[StartPoint]:
    if stored is None:
        return []
    time = stored.position.cluster_time
    at_time = [StartPoint(at_operation_time=time)] if time is not None else []
    return [stored.position.start_point, *at_time]
