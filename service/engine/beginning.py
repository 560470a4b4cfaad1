"""Where a life begins: at the checkpoint, and where destinations store positions of their own.

A destination that commits its data and its position together knows better than the store of
checkpoints: after a crash it is ahead, restored from a backup it lies behind. What the store
knows of it is which event it had last when the checkpoint was behind that event. If it still has
that one, the checkpoint is good for it too (and may be much later, on a quiet scope).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog
from bson.timestamp import Timestamp

from service.errors import ScopeHalted
from service.model import ChangeEvent, Checkpoint, SinkPosition, StartPoint
from service.model.checkpoint import CHOSEN
from service.model.cluster import ClusterIdentity
from service.model.start import NOW


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where to start the stream, and which destinations have more than the checkpoint knows.

    ``leads`` is the position of a destination that the start was taken from, if it was.
    """

    start: StartPoint
    own: Mapping[str, SinkPosition] = field(default_factory=dict)
    leads: SinkPosition | None = None

    def has(self, start: StartPoint) -> dict[str, SinkPosition]:
        """What must not be handed over again to whom, if the stream starts there."""
        if start == NOW:
            return {}  # behind everything that anybody has
        token = start.start_after
        return {name: one for name, one in self.own.items() if one.token != token}


class Behind:
    """Lets through what comes behind a position: for one destination, at the start of a life.

    Everything up to the position's own event is left out. Should that never come (a changed
    pipeline leaves it out), the first event of a later time ends the waiting.
    """

    def __init__(self, position: SinkPosition) -> None:
        self._token = position.token
        self._time = position.time
        self.passed = False

    def of(self, events: list[ChangeEvent]) -> list[ChangeEvent]:
        """Those of the events that the destination does not have."""
        for index, event in enumerate(events):
            if self.passed:
                return events[index:]
            time = event.cluster_time
            if self._time is not None and time is not None and time > self._time:
                self.passed = True
                return events[index:]
            self.passed = event.token == self._token
        return []


def start_point(
    scope: str,
    checkpoint: Checkpoint | None,
    configured: StartPoint,
    fingerprint: str,
    cluster: ClusterIdentity,
) -> StartPoint:
    """From the checkpoint if it is ours, else from its time; without one, where configured.

    ``fingerprint`` is that of the pipeline and options now, ``cluster`` the one that we talk to.
    Raises :class:`ScopeHalted` for a checkpoint of another cluster, and for one whose token and
    time are both of no use.
    """
    if checkpoint is None:
        return configured
    _check_cluster(scope, checkpoint, cluster)
    if checkpoint.fingerprint in ("", fingerprint):
        return checkpoint.start_point
    if checkpoint.cluster_time is None:
        raise ScopeHalted(
            f"scope {scope!r}: its pipeline or options changed since the checkpoint, whose "
            "token is not valid with the new ones, and its time is not known. Restore them, or "
            f"choose a position: 'tailrace checkpoints set {scope} --at TIME'"
        )
    structlog.get_logger().warning(
        "checkpoint.pipeline_changed",
        scope=scope,
        cluster_time=checkpoint.cluster_time.as_datetime().isoformat(),
        consequence="starts at the checkpoint's time: duplicates possible, nothing lost",
    )
    return StartPoint(at_operation_time=checkpoint.cluster_time)


def _check_cluster(scope: str, checkpoint: Checkpoint, cluster: ClusterIdentity) -> None:
    if not checkpoint.cluster:
        return
    stored = ClusterIdentity.parse(checkpoint.cluster)
    if not stored.may_be(cluster):
        raise ScopeHalted(
            f"scope {scope!r}: its checkpoint belongs to the cluster {stored}, and "
            f"mongodb.uri leads to {cluster}. A token of another cluster can skip changes "
            "silently. Correct the URI, use another checkpoint store, or forget the position: "
            f"'tailrace checkpoints reset {scope}'"
        )


def beginning(
    scope: str,
    wanted: StartPoint,
    checkpoint: Checkpoint | None,
    fingerprint: str,
    positions: Mapping[str, SinkPosition | None],
    *,
    others: bool,
) -> Beginning:
    """Where to begin so that nobody misses anything, and nobody gets again what it has.

    ``wanted`` is what the checkpoint (or the configuration) says, ``fingerprint`` that of the
    pipeline and options now; ``positions`` are the destinations' own, ``others`` whether the scope
    has handlers without one. Raises :class:`ScopeHalted` where the order of two positions cannot
    be known.
    """
    noted = checkpoint.owned if checkpoint is not None else {}
    if CHOSEN in noted:
        return Beginning(wanted)
    own = {
        name: position
        for name, position in positions.items()
        if position is not None and noted.get(name) != position.token.digest
    }
    if not own:
        return Beginning(wanted)
    # Handlers without a position, and those that have just what is noted, begin where it is said.
    wants = (others or len(own) < len(positions)) and (checkpoint is not None or wanted != NOW)
    if not wants and len({position.token for position in own.values()}) == 1:
        return _at(scope, next(iter(own.values())), fingerprint, checkpoint, own)
    times = {_time(scope, name, position): position for name, position in own.items()}
    earliest = min(times)
    since = None
    if wants:
        since = checkpoint.cluster_time if checkpoint is not None else wanted.cluster_time
        # Of a checkpoint without a time nothing was ever handled: nobody can lie before it.
        if since is None or since < earliest:
            return Beginning(wanted, own)
    leads = times[earliest]
    tied = sum(_time(scope, name, position) == earliest for name, position in own.items()) > 1
    if tied or since == earliest:
        return Beginning(StartPoint(at_operation_time=earliest), own, leads)
    return _at(scope, leads, fingerprint, checkpoint, own)


def _at(
    scope: str,
    position: SinkPosition,
    fingerprint: str,
    checkpoint: Checkpoint | None,
    own: Mapping[str, SinkPosition],
) -> Beginning:
    """Behind a destination's event: by its token, or by its time if the token is of no use now."""
    of = position.fingerprint or (checkpoint.fingerprint if checkpoint is not None else "")
    if of in ("", fingerprint):
        # An invalidate's token is accepted here only, and all others are too.
        return Beginning(StartPoint(start_after=position.token), own, position)
    if position.time is None:
        raise ScopeHalted(
            f"scope {scope!r}: its pipeline or options changed since a handler stored its "
            "position, whose token is not valid with the new ones, and its time is not known. "
            "Restore them, or let the handler's position() give the cluster time as well"
        )
    return Beginning(StartPoint(at_operation_time=position.time), own, position)


def _time(scope: str, name: str, position: SinkPosition) -> Timestamp:
    if position.time is None:
        raise ScopeHalted(
            f"scope {scope!r}: the position that handler {name!r} stored cannot be compared with "
            "those of the scope's other handlers: its token does not tell its time. Let position() "
            "return SinkPosition(token, cluster_time), or give the handler a scope of its own"
        )
    return position.time
