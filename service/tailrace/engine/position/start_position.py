"""Where a subscription continues in the stream.

A handler that owns its position continues where its destination stands. Any other continues at the
checkpoint. The checkpoint notes what each destination has: if that is still so, the checkpoint is
its position too (which may be much later, on a quiet scope).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import structlog
from bson.timestamp import Timestamp

from tailrace.engine.ports import RunIdentity
from tailrace.errors import ScopeHalted
from tailrace.model import Position, PositionKind, Progress, SinkPosition, StartPoint
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.progress import NOTHING
from tailrace.model.sink_position import NO_TOKEN
from tailrace.model.start import NOW
from tailrace.model.subscription import Subscription

TOGETHER_SECONDS = 5
"""Handlers whose positions are at most so far apart, in cluster time, begin with one stream: the
first ones get what they lack, and the others nothing again."""


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where one subscription continues.

    ``position``: what the run begins with. ``has``: what the handler has, which is removed from a
    stream that begins elsewhere. ``own``: the position of the destination, if that gave the start.
    ``save_first``: the position is not the checkpoint's, or an operator chose it, and a choice must
    count only once. ``fingerprint``: of the pipeline to which its tokens belong.
    """

    start: StartPoint
    position: Position
    has: Progress = NOTHING
    own: SinkPosition | None = None
    save_first: bool = False
    fingerprint: str = ""

    @property
    def time(self) -> Timestamp | None:
        """The cluster time of the position."""
        return self.position.cluster_time

    def is_exact(self, start: StartPoint) -> bool:
        """Whether a stream that begins there has nothing that the handler has."""
        if start == NOW or self.has == NOTHING:
            return True
        if self.has.handled:
            return False
        token, tokens = self.has.token, (start.start_after, start.resume_after)
        if token is not None and token in tokens:
            return True
        # A stream that begins at a time has all events of this time.
        at_token = start.at_operation_time is None or start.past is not None
        return start == self.start and (at_token or token is None)


def start_position(
    identity: RunIdentity,
    handler: str,
    configured: StartPoint,
    subscription: Subscription | None,
    cluster: str = "",
    sink: SinkPosition | None = None,
    *,
    down: bool = False,
) -> StartPosition:
    """Where a handler continues so that it misses no event, and gets none again that it has.

    ``sink``: the destination's own position, if it keeps one; ``down``: it does not answer, and is
    assumed to be as the checkpoint notes. ``cluster``: that of the checkpoint. Raises
    :class:`ScopeHalted` if no position can be used.
    """
    if subscription is None and sink is None:
        return StartPosition(configured, position_at(configured))
    if subscription is None:
        assert sink is not None  # noqa: S101 - for the type checker
        return _at(identity, handler, sink, None)
    wanted = _wanted(identity, handler, subscription, cluster)
    at = subscription.position
    if not (at.chosen or down):
        if sink is None and at.stored:
            _warn_of_missing(identity, handler)
        if sink is not None and not is_noted(sink, at):
            return _at(identity, handler, sink, subscription)
    stored = at.stored if down else ""
    if sink is not None:
        moved = at.chosen or at.stored == sink.before_move
        stored = sink.before_move if moved else sink.token.digest
    position, has = replace(at, stored=stored, chosen=False), at.progress
    again, of = at.chosen or subscription.halted != "", subscription.fingerprint
    return StartPosition(wanted, position, has, save_first=again, fingerprint=of)


def is_noted(sink: SinkPosition, at: Position) -> bool:
    """Whether a destination is still where the checkpoint noted it."""
    noted = at.stored in (sink.token.digest, sink.before_move)
    return noted or sink.token in (at.event_token, at.high_water)


def is_as_noted(subscription: Subscription | None, sink: SinkPosition | None) -> bool:
    """Whether a destination that was down at the start has the position that was assumed."""
    at = subscription.position if subscription is not None else None
    over = at is not None and (at.snapshot is None or at.snapshot.over)
    if sink is not None and sink.rows is not None and not over:
        return False  # which rows it has decides what the snapshot reads
    nothing = sink is None or sink.token == NO_TOKEN
    if at is None or sink is None or nothing:
        return nothing and not (at is not None and at.stored)
    return is_noted(sink, at)


def together(starts: Sequence[StartPosition], alone: Collection[int] = ()) -> list[bool]:
    """Which of them begin with the stream of the furthest one: those that are hardly behind it.

    Positions of different snapshots do not go together. ``alone``: the indexes of those whose
    snapshot only a stream of their own reads as it is configured, if there are others.
    """
    candidates = [start for n, start in enumerate(starts) if n not in alone] or starts
    furthest = candidates[0]
    for start in candidates:
        if furthest.position.is_before(start.position):
            furthest = start
    return [_near(start, furthest) for start in starts]


def _near(one: StartPosition, furthest: StartPosition) -> bool:
    snapshots = [each.position.snapshot for each in (one, furthest)]
    mine, other = (None if s is None or s.over else s for s in snapshots)
    if mine is not other and (mine is None or other is None or not mine.goes_with(other)):
        return False
    if one.start == furthest.start:
        return True
    if one.time is None or furthest.time is None:
        return False
    return furthest.time.time - one.time.time <= TOGETHER_SECONDS


def _wanted(
    identity: RunIdentity, handler: str, subscription: Subscription, cluster: str
) -> StartPoint:
    """The position's token; its time if pipeline or options changed."""
    scope, now = identity.scope, ClusterIdentity.parse(identity.cluster)
    stored = ClusterIdentity.parse(cluster) if cluster else now
    at = subscription.position
    if not stored.may_be(now):
        raise ScopeHalted(
            f"scope {scope!r}: its checkpoint belongs to the cluster {stored}, and "
            f"mongodb.uri leads to {now}. A token of another cluster can skip changes "
            "silently. Correct the URI, use another checkpoint store, or forget the position: "
            f"'tailrace checkpoints reset {scope}', then 'tailrace scopes restart {scope}', and "
            f"'tailrace snapshot start {scope}' for the documents that are there"
        )
    # What was set aside stays so: its time and the order of tokens depend on no pipeline.
    aside = at.kind is PositionKind.SET_ASIDE
    if subscription.fingerprint in ("", identity.fingerprint) or aside:
        return at.start_point
    if at.cluster_time is None:
        raise ScopeHalted(
            f"scope {scope!r}: its pipeline or options changed since the checkpoint, whose "
            "token is not valid with the new ones, and its time is not known. Restore them, or "
            f"choose a position: 'tailrace scopes seek {scope} --at TIME', then 'tailrace scopes "
            f"restart {scope}'"
        )
    structlog.get_logger().warning(
        "checkpoint.pipeline_changed",
        scope=scope,
        handler=handler,
        cluster_time=at.cluster_time.as_datetime().isoformat(),
        consequence="starts at the checkpoint's time: duplicates possible, nothing lost",
    )
    return StartPoint(at_operation_time=at.cluster_time)


def _at(
    identity: RunIdentity, handler: str, sink: SinkPosition, subscription: Subscription | None
) -> StartPosition:
    """After the destination's last event: by token, or by time if the token is not valid now."""
    of = sink.fingerprint or (subscription.fingerprint if subscription is not None else "")
    before = subscription.position if subscription is not None else None
    # Only `startAfter` accepts an invalidate's token, and it accepts all others too.
    start, current = StartPoint(start_after=sink.token), of in ("", identity.fingerprint)
    if not current and sink.time is None:
        raise ScopeHalted(
            f"scope {identity.scope!r}: its pipeline or options changed since handler {handler!r} "
            "stored its position, whose token is not valid with the new ones, and its time is not "
            "known. Restore them, or let the handler's position() give the cluster time as well"
        )
    if not current:
        start = StartPoint(at_operation_time=sink.time)
    position = Position(PositionKind.INVALIDATE, sink.token, sink.token, sink.time)
    position = replace(
        position,
        stored=sink.token.digest,
        started=(before.started if before is not None else None) or sink.time,
        reread=before.reread if before is not None else {},
        snapshot=before.snapshot if before is not None else None,
    )
    has = Progress(sink.token, sink.time)
    return StartPosition(start, position, has, sink, save_first=True, fingerprint=of)


def _warn_of_missing(identity: RunIdentity, handler: str) -> None:
    structlog.get_logger().warning(
        "position.missing",
        scope=identity.scope,
        handler=handler,
        consequence="it stored a position before and now reports none: continuing from "
        "the checkpoint. Earlier changes are not repeated: if the destination was emptied, "
        f"'tailrace snapshot start {identity.scope}' delivers the documents of now, and "
        "'tailrace scopes seek' the changes since a time",
    )


def position_at(start: StartPoint) -> Position:
    """The position before the first reply of a stream that begins there.

    After a possible invalidate its kind is ``INVALIDATE``: only ``startAfter`` can continue.
    """
    kind = PositionKind.INVALIDATE if start.start_after is not None else PositionKind.IDLE
    return Position(kind, None, None, start.at_operation_time)
