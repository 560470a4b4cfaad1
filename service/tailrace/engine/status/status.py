"""What a watcher is doing, for people and for Prometheus: computed on request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog
from bson.timestamp import Timestamp

from tailrace.engine.held_lease import ObservedLease
from tailrace.engine.plan.row_source import ObservedSnapshot
from tailrace.engine.position.cluster_time import later
from tailrace.engine.position.watermarks import Watermarks
from tailrace.engine.status.history_risk import history_risk
from tailrace.engine.status.in_flight import Find
from tailrace.engine.status.lag import MOST_LAG_SECONDS, awaited_call, iso, lag
from tailrace.engine.status.lags import greatest, lags
from tailrace.engine.status.saving import Saving
from tailrace.engine.status.scope_counts import ScopeCounts
from tailrace.engine.status.snapshot_status import as_handled, is_past, least
from tailrace.engine.status.watcher_state import IN_OUTAGES, READING, WatcherState
from tailrace.model import Checkpoint, Position, Scope, SnapshotProgress
from tailrace.model.position import earliest
from tailrace.model.subscription import Subscription
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.observe.recent_errors import RecentErrors
from tailrace.stream import ServerClock, StreamActivity

_CAUGHT_UP_SECONDS = 10
"""A primary writes a no-op every 10 s (mongod, periodicNoopIntervalSecs), and an idle shard holds
a stream back by as much. With a smaller lag, a stream whose reply is empty has seen everything."""


@dataclass(slots=True)
class Status:
    """The state of a course of a scope, with its run's ``watermark`` and the ``checkpoint``."""

    scope: Scope
    clock: ServerClock = field(default_factory=ServerClock)
    recorders: Mapping[str, HandlerRecorder] = field(default_factory=dict)
    snapshot: Callable[[], ObservedSnapshot | None] = lambda: None
    lease: Callable[[], ObservedLease | None] = lambda: None
    """The scope's lease, where processes share the scopes."""
    apart: Callable[[], Mapping[str, Status]] = dict
    """Of the scope's shared course: by handler on its own, the status of its course."""
    replays: Callable[[], Mapping[str, Status]] = dict
    """Of the scope's shared course: by handler, the status of the course of its replay."""
    waits_for: Callable[[], str] = lambda: ""
    """The handler call that has run longest, for people; empty if none runs."""
    watermark: Watermarks | None = None
    find: Find | None = None
    """Finds an event that is in flight, while a run reads."""
    checkpoint: Checkpoint | None = None
    committed_time: Timestamp | None = None
    """How far everything was handled when the checkpoint was saved."""
    unsaved: str = ""
    """Why the last position of the run that ended is not stored; empty if it is."""
    saving: Saving = field(default_factory=Saving)
    counts: ScopeCounts = field(default_factory=ScopeCounts)
    errors: RecentErrors = field(default_factory=RecentErrors)
    stream: StreamActivity = field(init=False)
    entered: float = field(default_factory=time.monotonic)
    """When the watcher entered its state, by the monotonic clock."""
    _state: WatcherState = WatcherState.STARTING
    _reason: str = ""
    _since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.stream = StreamActivity(self.scope.name, self.clock, self.errors, self.counts.resumes)

    def enter(self, state: WatcherState, reason: str = "") -> None:
        """Notes that the watcher entered a state."""
        if (state, reason) == (self._state, self._reason):
            return
        self._state, self._reason, self._since = state, reason, datetime.now(UTC)
        self.entered = time.monotonic()
        structlog.get_logger().debug("watcher.entered", scope=self.scope.name, state=state.value)

    def stand_by(self) -> None:
        """The lease says who follows the scope; forgets the run that ended here."""
        for each in self.courses:
            each.watermark, each.unsaved = None, ""
        self.enter(WatcherState.STANDBY)

    def stored(self, checkpoint: Checkpoint) -> None:
        """Notes the checkpoint that the process that follows the scope has saved."""
        self.checkpoint, self.committed_time = checkpoint, checkpoint.position.cluster_time

    def committed(self, time: Timestamp | None) -> None:
        """Notes that everything up to this time is handled and stored."""
        self.committed_time = later(self.committed_time, time)

    @property
    def state(self) -> WatcherState:
        """The state that the watcher entered, which the lease, the stream or an outage may refine.

        A scope whose lease is gone is not followed, whatever its last run still does.
        """
        if self.outlived is None and self._state in IN_OUTAGES and self._down:
            return WatcherState.WAITING
        return self.stream_state

    @property
    def starting(self) -> bool:
        """Whether the run has begun, and has not opened its stream yet."""
        return self._state is WatcherState.STARTING

    @property
    def stream_state(self) -> WatcherState:
        """The state without regard to outages: the stream is read while other handlers go on."""
        if self.outlived is not None:
            return WatcherState.STANDBY
        if self._state in READING:
            if self.stream.resuming:
                return WatcherState.STARTING
            if self.stream.searching:
                return WatcherState.CATCHING_UP
        return self._state

    @property
    def reason(self) -> str:
        """Why the watcher is in its state, and what that leads to; empty if it needs no reason."""
        return "; ".join(filter(None, (self._cause, self.history_risk)))

    @property
    def history_risk(self) -> str:
        """Why changes are lost, or soon will be, while the scope does not read; else empty."""
        still = (WatcherState.PAUSED, WatcherState.WAITING, WatcherState.BACKING_OFF)
        if self.state not in still or (saved := self.saved()) is None:
            return ""
        return history_risk(saved.position.cluster_time, self.clock.now(), self.clock.oplog)

    @property
    def _cause(self) -> str:
        if (gone := self.outlived) is not None:
            waits = self.waits_for() or "waits for the end of its last run"
            return f"{gone.reason}; this process cannot follow it: it {waits}"
        if self._state in IN_OUTAGES and (down := self._down):
            return "; ".join(down.values())
        if self._state in READING and self.stream.resuming:
            return f"resumes after: {self.stream.resuming}"
        if self._state in READING and self.stream.member_lag:
            return (
                f"the member that is read, {self.stream.member or 'the only one of the URI'}, is "
                f"{self.stream.member_lag:.0f} s behind the set: see its replication, or let "
                "read_preference choose another one"
            )
        if self._state is WatcherState.STANDBY and (lease := self.lease()) is not None:
            return lease.reason
        return self._reason

    @property
    def since(self) -> datetime:
        """When the watcher entered its state."""
        if self._state in IN_OUTAGES and self._down:
            each = self._fed.values()
            began = [time for one in each for time in (one.down_since, one.call_since) if time]
            return datetime.fromtimestamp(min(began), UTC)
        return self._since if self.state is self._state else max(self._since, self.stream.since)

    @property
    def outlived(self) -> ObservedLease | None:
        """The lease, if it is gone while a handler call here has not ended."""
        lease = self.lease()
        return lease if lease is not None and lease.outlived else None

    @property
    def _down(self) -> dict[str, str]:
        """By handler, for what the scope waits if its destination is down, or holds a call."""
        down = {
            name: f"waits for the destination of handler {name!r} since "
            f"{iso(int(each.down_since))}: {each.down_cause}"
            for name, each in self._fed.items()
            if each.down_since is not None
        }
        return down | {
            name: awaited_call(name, each.call, each.call_since)
            for name, each in self._fed.items()
            if each.call_since is not None and name not in down
        }

    @property
    def _fed(self) -> dict[str, HandlerRecorder]:
        apart = self.apart()
        return {name: each for name, each in self.recorders.items() if name not in apart}

    def saved(self, handler: str | None = None) -> Subscription | None:
        """How far a handler is by the checkpoint, or the one of this course that stands last."""
        if self.checkpoint is None:
            return None
        if handler is not None:
            return self.checkpoint.of(handler)
        known = [one for name in self._fed if (one := self.checkpoint.of(name)) is not None]
        return earliest(known or [self.checkpoint.last], lambda each: each.position)

    def position(self, handler: str | None = None) -> Position | None:
        """Up to where a handler, or all of this course, have everything, while that is read."""
        watermark = self.shown
        of = watermark if handler is None or watermark is None else watermark.each.get(handler)
        return of.position if of is not None else None

    @property
    def courses(self) -> Sequence[Status]:
        """This one, and those of the handlers on their own."""
        return [self, *self.apart().values()]

    @property
    def explanation(self) -> str:
        """The reason; without one, the handler call that the watcher waits for."""
        waits = self._state in (WatcherState.DRAINING, WatcherState.WAITING)
        return self.reason or (self.waits_for() if waits else "")

    @property
    def read_lag(self) -> float:
        """Seconds that the stream lags behind the set; 0 if unknown."""
        read = self.watermark.read_time if self.watermark is not None else None
        return lag(self.stream.set_time or self.stream.server_time, read) or 0.0

    @property
    def obstacle(self) -> str:
        """Why existing documents are not read now; empty if they may be."""
        if self.stream_state not in READING:
            return f"the scope is {self.stream_state.value.replace('_', ' ')}"
        if self.read_lag > MOST_LAG_SECONDS:
            return f"catching up with the stream first ({self.read_lag:.0f} s behind)"
        return ""

    @property
    def handled_snapshot(self) -> ObservedSnapshot | None:
        """The snapshot of the course, as far as all its handlers have its rows."""
        seen = self.snapshot()
        of_all = {name: self._progress(name) for name in self._fed} or {"": self._progress(None)}
        return as_handled(seen, least(seen, of_all, self.shown.busy if self.shown else ()))

    def snapshot_of(self, handler: str) -> ObservedSnapshot | None:
        """The last snapshot of a handler of this course, as far as it has its rows."""
        seen, own = self.snapshot(), self._progress(handler)
        busy = self.shown is not None and handler in self.shown.busy
        if seen is not None and not is_past(own, seen.progress, busy=busy):
            return as_handled(seen, own)
        return ObservedSnapshot(own) if own is not None else None

    def _progress(self, handler: str | None) -> SnapshotProgress | None:
        saved = self.saved(handler)
        at = self.position(handler) or (saved.position if saved is not None else None)
        return at.snapshot if at is not None else None

    def following(self, events: int, *, opening: bool) -> WatcherState:
        """The state after a reply with this number of events, which has its places.

        An ``opening`` reply never has events: the server has not searched yet.
        """
        if events:
            return WatcherState.STREAMING
        now = self.stream.server_time
        read = self.watermark.read_time if self.watermark is not None else None
        behind = self.read_lag > _CAUGHT_UP_SECONDS or self.stream.member_lag
        if behind or (opening and read != later(now, read)):
            return WatcherState.CATCHING_UP
        return WatcherState.CAUGHT_UP

    @property
    def lags(self) -> dict[str, float]:
        """By stage, the lag of the scope's last handler behind the server."""
        return greatest([lags(each) for each in self.courses])

    def lags_of(self, handler: str) -> dict[str, float]:
        """By stage, the lag of a handler of this course."""
        return lags(self, handler)

    @property
    def lag(self) -> float | None:
        """How far the handlers lag, as the process that follows the scope knows it."""
        if self.state is not WatcherState.STANDBY:
            return self.lags.get("handled")
        lease = self.lease()
        report = lease.report if lease is not None else None
        return report.lag_seconds if report is not None else None

    @property
    def shown(self) -> Watermarks | None:
        """The watermark, while the scope is followed here, and a handler is in the course."""
        empty = self.watermark is None or not self.watermark.each
        return None if empty or self.outlived is not None else self.watermark

    def reached(self, handler: str | None = None) -> tuple[Position, Timestamp | None] | None:
        """Up to where all (or one) has handled everything, saved or not, and up to where changes
        are with handlers (``None`` without such); ``None`` if it is not known here."""
        shared = self.shown
        of = shared.each.get(handler) if shared is not None and handler is not None else shared
        if shared is None or of is None:
            return None
        return of.position, shared.read_time if of.events else None
