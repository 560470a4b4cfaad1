"""Where a run starts, and which events each handler has already.

A handler that owns its position has the progress that its destination reports. Any other has the
checkpoint's, or what the checkpoint notes for it beyond that. The stream starts at the least
progress, and :class:`HandledBefore` removes the events that the other handlers have.

The checkpoint notes the position of each destination. If the destination is still there, the
checkpoint is its progress too (which may be much later, on a quiet scope).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog
from bson.timestamp import Timestamp

from tailrace.engine.ports import RunIdentity
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.errors import ScopeHalted
from tailrace.model import Checkpoint, Position, PositionKind, Progress, SinkPosition, StartPoint
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.position import CHOSEN
from tailrace.model.progress import NOTHING
from tailrace.model.sink_position import NO_TOKEN
from tailrace.model.start import NOW


@dataclass(frozen=True, slots=True)
class RunStart:
    """What a run starts with. ``before`` removes the events that handlers already have.

    ``stored``: the position, if the store has it already. ``save_first``: save the position before
    the first change is handled, because it is not the checkpoint's, or because an operator chose
    it: a choice must count only once.
    """

    position: Position
    before: Mapping[str, HandledBefore]
    stored: Position | None
    save_first: bool = False


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where to start the stream, and what each handler has.

    ``there``: the progress of handlers that continue at the checkpoint (or where configured); a
    stream that starts at ``exactly`` repeats nothing of it. ``own``: the positions of destinations
    that stand elsewhere. ``noted``: the digests of all destinations' positions. ``leader``: the
    handler whose own position gave the start, if any. ``fingerprint``: of the current pipeline.
    """

    start: StartPoint
    exactly: StartPoint = NOW
    there: Progress = NOTHING
    progress: Mapping[str, Progress] = field(default_factory=dict)
    own: Mapping[str, SinkPosition] = field(default_factory=dict)
    noted: Mapping[str, str] = field(default_factory=dict)
    leader: str = ""
    fingerprint: str = ""

    @property
    def leads(self) -> SinkPosition | None:
        """The leader's own position, which gave the start."""
        return self.own.get(self.leader)

    def beyond(self, start: StartPoint) -> dict[str, Progress]:
        """The progress of handlers that already have some events of a stream that starts there."""
        if start == NOW:
            return {}  # after everything that any handler has
        tokens = [token for token in (start.start_after, start.resume_after) if token is not None]
        return {
            name: progress
            for name, progress in self.progress.items()
            if progress.handled
            or not (
                progress in (NOTHING, self.there if start == self.exactly else None)
                or progress.token in tokens
            )
        }

    def run(self, start: StartPoint, checkpoint: Checkpoint | None, *, gap: bool) -> RunStart:
        """How a run begins there. A ``gap`` counts as handled: no handler is led back before it."""
        beyond = self.beyond(start)
        before = {
            name: HandledBefore(progress, waits=name in self.own)
            for name, progress in beyond.items()
        }
        if gap:
            beyond = {name: one for name, one in beyond.items() if not self._lacks(one)}
            base = position_at(None, start)
        elif self.leads is not None and start.start_after == self.leads.token:
            # The token may be an invalidate's: only `startAfter` finds what comes after one.
            token, time = self.leads.token, self.leads.time
            base = Position(PositionKind.INVALIDATE, token, token, time)
        elif self.leads is not None and start.at_operation_time is not None:
            base = Position(PositionKind.IDLE, None, None, start.at_operation_time)
        else:
            base = position_at(checkpoint, start)
        at = checkpoint.position if checkpoint is not None else base
        known = checkpoint is None or checkpoint.fingerprint in ("", self.fingerprint)
        if not known and start.at_operation_time is not None and start.past is None:
            # The checkpoint's tokens are of another pipeline.
            base = Position(PositionKind.IDLE, None, None, start.at_operation_time)
        position = replace(
            base,
            sink_digests=self.noted,
            beyond=beyond,
            started=at.started or base.cluster_time,
            reread=at.reread,
        )
        chosen = checkpoint is not None and CHOSEN in checkpoint.position.sink_digests
        elsewhere = chosen or self.leads is not None
        again = not known or elsewhere or (checkpoint is not None and checkpoint.halted != "")
        return RunStart(position, before, None if again else position, elsewhere)

    def _lacks(self, progress: Progress) -> bool:
        there = self.there
        known = progress.is_passed_by(there.token, there.cluster_time)
        return known or (self.leads is not None and progress.token == self.leads.token)


def start_position(
    identity: RunIdentity,
    configured: StartPoint,
    checkpoint: Checkpoint | None,
    positions: Mapping[str, SinkPosition | None],
    others: Sequence[str] = (),
    down: Sequence[str] = (),
) -> StartPosition:
    """Where to start so that no handler misses an event, or gets one again that it has.

    ``positions``: the destinations' own; ``others``: the names of the handlers without their own;
    ``down``: those whose destination does not answer, and is assumed to be as the checkpoint notes.
    Raises :class:`ScopeHalted` if no position can be used, or the order of two cannot be known.
    """
    wanted = _wanted(identity, configured, checkpoint)
    digests = {name: one.token.digest for name, one in positions.items() if one is not None}
    if checkpoint is not None and CHOSEN in checkpoint.position.sink_digests:
        return StartPosition(wanted, noted=digests, fingerprint=identity.fingerprint)
    exactly, there = wanted, Progress(wanted.token, wanted.cluster_time)
    beyond: Mapping[str, Progress] = {}
    if checkpoint is not None:
        at = checkpoint.position
        exactly, there, beyond, noted = at.start_point, at.progress, at.beyond, at.sink_digests
        digests |= {name: noted[name] for name in down if name in noted}
    progress = {name: beyond.get(name, there) for name in (*others, *down)}
    own = {}
    for name, position in positions.items():
        known = there if position is None else _known(name, position, checkpoint)
        if position is None and checkpoint is not None and name in checkpoint.position.sink_digests:
            structlog.get_logger().warning(
                "position.missing",
                scope=identity.scope,
                handler=name,
                consequence="it stored a position before and now reports none: continuing from "
                "the checkpoint. Earlier changes are not repeated: if the destination was emptied, "
                f"'tailrace snapshot start {identity.scope}' delivers the documents of now, and "
                "'tailrace scopes seek' the changes since a time",
            )
        if position is not None and known is None:
            own[name] = position
            known = Progress(position.token, position.time)
        progress[name] = known or there
    fingerprint = identity.fingerprint
    found = StartPosition(wanted, exactly, there, progress, own, digests, fingerprint=fingerprint)
    if not own:
        return found
    # The others start at `wanted`. Without a checkpoint, "now" may be any position.
    wants = len(own) < len(progress) and (checkpoint is not None or wanted != NOW)
    if not wants and len({position.token for position in own.values()}) == 1:
        return _at(identity, found, next(iter(own)), checkpoint)
    times = {name: _time(identity, name, position) for name, position in own.items()}
    leader = min(own, key=times.__getitem__)
    earliest = times[leader]
    since = None
    if wants:
        since = checkpoint.position.cluster_time if checkpoint is not None else wanted.cluster_time
        # A checkpoint without a time: nothing was ever handled, so no handler can be before it.
        if since is None or since < earliest:
            return found
    if since == earliest or len({own[n].token for n, at in times.items() if at == earliest}) > 1:
        # Events of one transaction: it is not known which came first.
        return replace(found, start=StartPoint(at_operation_time=earliest), leader=leader)
    return _at(identity, found, leader, checkpoint)


def is_as_noted(name: str, checkpoint: Checkpoint | None, position: SinkPosition | None) -> bool:
    """Whether a handler of which :func:`start_position` was told that it is down has this position.

    A destination that was restored may be at the checkpoint's own position, while the checkpoint
    notes that the handler had more.
    """
    at = checkpoint.position if checkpoint is not None else None
    over = at is not None and (at.snapshot is None or at.snapshot.over)
    if position is not None and position.rows is not None and not over:
        return False  # which rows it has decides what the snapshot reads
    nothing = position is None or position.token == NO_TOKEN
    if at is None:
        return nothing
    assumed = at.beyond.get(name, at.progress)
    if position is None or nothing:
        return name not in at.sink_digests and assumed == at.progress
    return _known(name, position, checkpoint) == assumed


def _wanted(
    identity: RunIdentity, configured: StartPoint, checkpoint: Checkpoint | None
) -> StartPoint:
    """The checkpoint's token; its time if pipeline or options changed; or the configured start."""
    if checkpoint is None:
        return configured
    scope, cluster = identity.scope, ClusterIdentity.parse(identity.cluster)
    stored = ClusterIdentity.parse(checkpoint.cluster) if checkpoint.cluster else cluster
    if not stored.may_be(cluster):
        raise ScopeHalted(
            f"scope {scope!r}: its checkpoint belongs to the cluster {stored}, and "
            f"mongodb.uri leads to {cluster}. A token of another cluster can skip changes "
            "silently. Correct the URI, use another checkpoint store, or forget the position: "
            f"'tailrace checkpoints reset {scope}', then 'tailrace scopes restart {scope}', and "
            f"'tailrace snapshot start {scope}' for the documents that are there"
        )
    # What was set aside stays so: its time and the order of tokens depend on no pipeline.
    aside = checkpoint.position.kind is PositionKind.SET_ASIDE
    if checkpoint.fingerprint in ("", identity.fingerprint) or aside:
        return checkpoint.position.start_point
    if checkpoint.position.cluster_time is None:
        raise ScopeHalted(
            f"scope {scope!r}: its pipeline or options changed since the checkpoint, whose "
            "token is not valid with the new ones, and its time is not known. Restore them, or "
            f"choose a position: 'tailrace scopes seek {scope} --at TIME', then 'tailrace scopes "
            f"restart {scope}'"
        )
    structlog.get_logger().warning(
        "checkpoint.pipeline_changed",
        scope=scope,
        cluster_time=checkpoint.position.cluster_time.as_datetime().isoformat(),
        consequence="starts at the checkpoint's time: duplicates possible, nothing lost",
    )
    return StartPoint(at_operation_time=checkpoint.position.cluster_time)


def _known(name: str, position: SinkPosition, checkpoint: Checkpoint | None) -> Progress | None:
    """The progress of a destination that is still where the checkpoint noted it, else ``None``."""
    if checkpoint is None:
        return None
    at = checkpoint.position
    if at.sink_digests.get(name) == position.token.digest:
        return at.beyond.get(name, at.progress)
    if position.token in (at.event_token, at.high_water):
        return at.progress
    return None


def _at(
    identity: RunIdentity, found: StartPosition, leader: str, checkpoint: Checkpoint | None
) -> StartPosition:
    """Starts after the leader's last event: by token, or by time if the token is not valid now."""
    position = found.own[leader]
    of = position.fingerprint or (checkpoint.fingerprint if checkpoint is not None else "")
    if of in ("", identity.fingerprint):
        # Only `startAfter` accepts an invalidate's token, and it accepts all others too.
        return replace(found, start=StartPoint(start_after=position.token), leader=leader)
    if position.time is None:
        raise ScopeHalted(
            f"scope {identity.scope!r}: its pipeline or options changed since handler {leader!r} "
            "stored its position, whose token is not valid with the new ones, and its time is not "
            "known. Restore them, or let the handler's position() give the cluster time as well"
        )
    return replace(found, start=StartPoint(at_operation_time=position.time), leader=leader)


def _time(identity: RunIdentity, name: str, position: SinkPosition) -> Timestamp:
    if position.time is None:
        raise ScopeHalted(
            f"scope {identity.scope!r}: the position that handler {name!r} stored cannot be "
            "compared with those of the scope's other handlers: its token does not tell its time. "
            "Let position() return SinkPosition(token, cluster_time), or give the handler a scope "
            "of its own"
        )
    return position.time


def position_at(checkpoint: Checkpoint | None, start: StartPoint) -> Position:
    """The position before a run's first reply.

    After a possible invalidate its kind is ``INVALIDATE``: only ``startAfter`` can continue.
    """
    kind = checkpoint.position.kind if checkpoint is not None else PositionKind.IDLE
    if start.start_after is not None:
        kind = PositionKind.INVALIDATE
    if checkpoint is None:
        return Position(kind, None, None, start.at_operation_time)
    at = checkpoint.position
    return Position(kind, at.event_token, at.high_water, at.cluster_time)
