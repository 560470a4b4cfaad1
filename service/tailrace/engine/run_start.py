"""What a run begins with: the position of each handler of its course, and their snapshot.

A handler that cannot begin with the others leaves for a course of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tailrace.engine.course import Course
from tailrace.engine.first_position import begin_now
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.plan.router import Routed
from tailrace.engine.plan.row_source import KnownSnapshots
from tailrace.engine.ports import RunIdentity
from tailrace.engine.position.snapshot_start import least_snapshot, rows_of_handlers
from tailrace.engine.position.start_position import (
    StartPosition,
    position_at,
    start_position,
    together,
)
from tailrace.engine.questions import ask_all
from tailrace.engine.replayed_span import ReplayedSpan
from tailrace.engine.seek import seek, to_move
from tailrace.errors import ScopeHalted
from tailrace.model import Checkpoint, SinkPosition, SnapshotProgress, StartPoint
from tailrace.model.gap import Gap
from tailrace.model.position import earliest
from tailrace.model.sink_position import NO_TOKEN
from tailrace.model.snapshot import StoredRows
from tailrace.model.start import NOW


@dataclass(frozen=True, slots=True)
class HandlerStart:
    """How a handler begins. ``rows``: which rows of a snapshot it has."""

    routed: Routed | None
    delivery: Delivery | None
    position: StartPosition
    rows: StoredRows | None = None

    @property
    def name(self) -> str:
        """The handler's name; empty for a scope without handlers."""
        return self.routed.name if self.routed is not None else ""

    @property
    def reads_apart(self) -> bool:
        """Whether it has a snapshot that is configured for it alone, and is not over."""
        snapshot, of = self.position.position.snapshot, self.routed
        return of is not None and of.begins_apart and snapshot is not None and not snapshot.over


async def settle(course: Course, identity: RunIdentity, checkpoint: Checkpoint | None) -> None:
    """Gives new handlers a position, and moves those that an operator has moved."""
    scope, claim = course.scope, course.scope.claim
    if course.replay is not None:
        await _begin_replay(course, course.replay, identity)
        return
    _require_readable(course, checkpoint)
    new = [name for name in course.names if claim.of(name) is None]
    if new and course.on_detach is not None:
        apart = new if len(new) < len(course.names) else _begin_apart(course)
        for name in apart:
            course.detach(name)
        new = [name for name in new if name not in apart]
    runtime, desired = scope.runtime, scope.desired
    if new and _start_of(course, new[0]) == NOW:
        generation = desired.of(new[0]).snapshot_generation
        made = await begin_now(new, course.rows, claim, identity, runtime, generation)
        checkpoint = made or checkpoint
    if desired.state is not None and (moved := to_move(desired.state, course.names, claim)):
        checkpoint = await seek(desired.state, moved, checkpoint, claim, identity, runtime)
        course.history.progressed()
    course.status.checkpoint = checkpoint
    for name in list(course.names):
        wanted = desired.wants_alone(name, claim.snapshot_of(name))
        paused = desired.of(name).paused and not desired.pauses
        if (wanted or paused) and course.can_detach:
            course.detach(name)


async def _begin_replay(course: Course, span: ReplayedSpan, identity: RunIdentity) -> None:
    """Gives a replay its first position, unless it goes on."""
    scope, name = course.scope, course.names[0]
    known = scope.claim.of(name)
    if known is None or known.replay is None or known.replay.generation < span.replay.generation:
        first = {name: span.beginning(identity.fingerprint)}
        course.status.checkpoint = await scope.claim.save(scope.runtime.store, identity, first)


def _require_readable(course: Course, checkpoint: Checkpoint | None) -> None:
    damaged = checkpoint.damaged if checkpoint is not None else {}
    for name in [each for each in course.names if each in damaged]:
        scope = course.scope.plan.scope.name
        error = ScopeHalted(
            f"scope {scope!r}: the stored position of handler {name!r} cannot be read. Restore the "
            f"store from a backup, or choose a position: 'tailrace scopes seek {scope} --handler "
            f"{name} --at TIME', then 'tailrace scopes restart {scope} --handler {name}'"
        )
        if to_move(course.scope.desired.state, [name], course.scope.claim):
            continue
        if not course.can_detach:
            raise error
        course.detach(name, error)


def _begin_apart(course: Course) -> list[str]:
    """New handlers that begin in a way of their own, if others do not."""
    apart = [each.name for each in course.routed if each.begins_apart]
    return apart if len(apart) < len(course.routed) else apart[1:]


def _start_of(course: Course, name: str) -> StartPoint:
    of = next((each for each in course.routed if each.name == name), None)
    start = of.start if of is not None else None
    return course.scope.plan.start if start is None else start


async def beginnings(
    course: Course,
    identity: RunIdentity,
    checkpoint: Checkpoint | None,
    deliveries: Mapping[str, Delivery],
) -> list[HandlerStart]:
    """How each handler begins that begins with this run."""
    if not course.routed:
        position = _position(course, identity, checkpoint, "", None)
        return [HandlerStart(None, None, position)]
    calls = {
        routed.name: partial(
            _beginning, course, identity, checkpoint, routed, deliveries[routed.name]
        )
        for routed in course.routed
    }
    starts = list((await ask_all(course, calls)).values())
    if not starts:
        return []  # a stop came
    stay = together(
        [start.position for start in starts],
        [n for n, start in enumerate(starts) if start.reads_apart],
    )
    if course.on_detach is not None:
        for start, with_others in zip(starts, stay, strict=True):
            if not with_others:
                course.detach(start.name)
    return [start for start, with_others in zip(starts, stay, strict=True) if with_others]


async def _beginning(
    course: Course,
    identity: RunIdentity,
    checkpoint: Checkpoint | None,
    routed: Routed,
    delivery: Delivery,
) -> HandlerStart:
    noted = course.scope.claim.of(routed.name)
    answers = await delivery.position.load_unless_down(noted, waits=not course.can_detach)
    sink = delivery.position.loaded
    rows = sink.rows if sink is not None else None
    if sink is not None and sink.token == NO_TOKEN:
        sink = None
    position = _position(course, identity, checkpoint, routed.name, sink, down=not answers)
    return HandlerStart(routed, delivery, position, rows)


def _position(
    course: Course,
    identity: RunIdentity,
    checkpoint: Checkpoint | None,
    name: str,
    sink: SinkPosition | None,
    *,
    down: bool = False,
) -> StartPosition:
    cluster = checkpoint.cluster if checkpoint is not None else ""
    noted = course.scope.claim.of(name)
    start = _start_of(course, name)
    return start_position(identity, name, start, noted, cluster, sink, down=down)


def leave_last(course: Course, begun: Sequence[HandlerStart]) -> bool:
    """Lets the handlers go on alone from whose position the stream was to begin, as the server
    refused that; returns whether others are left, whose positions may be good. Some may have left
    before."""
    refused, names = last_of(begun).position.start, course.names
    there = [e.name for e in begun if e.position.start == refused and e.name in names]
    if course.on_detach is None or len(there) == len(names):
        return False
    for name in there:
        course.detach(name)
    return True


def last_of(begun: Sequence[HandlerStart]) -> HandlerStart:
    """The one that stands last."""
    return earliest(begun, lambda each: each.position.position)


def after_gap(
    course: Course, begun: Sequence[HandlerStart], start: StartPoint
) -> list[HandlerStart]:
    """What the handlers begin with after changes that they skip: they count as handled.

    Those that begin apart leave, to skip them on their own: a snapshot after a gap is theirs, too.
    """
    own = [one for one in begun if one.routed is not None and one.routed.begins_apart]
    if course.on_detach is not None and len(own) < len(begun):
        for beginning in own:
            course.detach(beginning.name)
        begun = [beginning for beginning in begun if beginning not in own]
    return [
        replace(beginning, position=_skipping(start, beginning.position)) for beginning in begun
    ]


async def tell_gap(course: Course, begun: Sequence[HandlerStart], gap: Gap) -> None:
    """Tells the handlers about a gap before they begin; those that do not take it may leave."""
    calls = {
        each.name: partial(each.delivery.position.skipped, gap)
        for each in begun
        if each.delivery is not None
    }
    await ask_all(course, calls)


def _skipping(start: StartPoint, position: StartPosition) -> StartPosition:
    at = position.position
    begins = replace(
        position_at(start),
        stored=at.stored,
        snapshot=at.snapshot,
        started=at.started,
        reread=at.reread,
    )
    return StartPosition(start, begins, save_first=True)


async def begin_pause(course: Course, identity: RunIdentity) -> None:
    """Saves what the store did not take before: the pause may last until another process follows
    the scope. Shows the rows meanwhile."""
    claim = course.scope.claim
    if unsaved := {name: claim.unsaved[name] for name in course.names if name in claim.unsaved}:
        saved = await claim.save(course.scope.runtime.store, identity, unsaved)
        course.status.checkpoint, course.status.unsaved = saved, ""
    begin_rows(course, (), gap=False)


def begin_rows(course: Course, begun: Sequence[HandlerStart], *, gap: bool) -> list[HandlerStart]:
    """Begins with the snapshot in the checkpoint, and with what is requested since; returns the
    beginnings with the snapshot's progress. ``gap``: the run starts after a gap."""
    desired, first = course.scope.desired, course.scope.claim.of(course.names[0])
    snapshots = {each.name: each.position.position.snapshot for each in begun}
    known = least_snapshot([*snapshots.values()])
    if not begun and first is not None:
        known = first.position.snapshot
    stored = {each.name: each.rows for each in begun if each.rows is not None}
    rows = rows_of_handlers(snapshots, stored, known)
    snapshot = course.rows.begin(
        KnownSnapshots(
            known,
            fresh=first is None,
            gap=gap,
            rows=rows,
            handled=[one for one in snapshots.values() if one is not None],
            generation=desired.of(course.names[0]).snapshot_generation,
            keys=course.scope.runtime.keys,
        )
    )
    desired.request_snapshot(course.rows, course.names, course.scope.claim.snapshot_of)
    if snapshot == known and (known is None or known.over):
        return list(begun)  # each keeps what it knows of its last one
    return [_with_snapshot(each, snapshot, rows.get(each.name)) for each in begun]


def _with_snapshot(
    begun: HandlerStart, snapshot: SnapshotProgress | None, rows: StoredRows | None
) -> HandlerStart:
    at = begun.position
    snapshot = rows.progress(snapshot) if snapshot is not None and rows is not None else snapshot
    handled = at.position.snapshot.handled if at.position.snapshot is not None else frozenset()
    if snapshot is not None and snapshot.handled != handled:
        snapshot = replace(snapshot, handled=handled)
    return replace(begun, position=replace(at, position=replace(at.position, snapshot=snapshot)))
