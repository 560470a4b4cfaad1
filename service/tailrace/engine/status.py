"""What a watcher is doing, for people and for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from bson.timestamp import Timestamp

from tailrace.engine.handle.calls import waits_for
from tailrace.engine.position.watermark import Position, Watermark
from tailrace.engine.recent_errors import RecentErrors
from tailrace.engine.server_clock import ServerClock
from tailrace.event import Batch
from tailrace.model import Checkpoint, Progress, Scope
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.observe.history import Sample
from tailrace.observe.scrape import ScopeGauges


class WatcherState(StrEnum):
    """The states of design §2. A watcher never ends but in ``stopped`` or ``halted``."""

    STARTING = "starting"
    CATCHING_UP = "catching_up"
    """The server searches its oplog, from an old position on, for the scope's next change."""
    STREAMING = "streaming"
    CAUGHT_UP = "caught_up"
    DRAINING = "draining"
    STOPPED = "stopped"
    BACKING_OFF = "backing_off"
    PAUSED = "paused"
    """Reading waits for handlers: the byte budget is spent, or they are a whole reply behind."""
    HALTED = "halted"
    """Needs a person; the reason says why."""


READING = frozenset({WatcherState.CATCHING_UP, WatcherState.STREAMING, WatcherState.CAUGHT_UP})
READY = READING | {WatcherState.PAUSED}
_TOLD = READING - {WatcherState.CATCHING_UP}
"""Replies come, and tell the server's time."""
ENDED = frozenset({WatcherState.STOPPED, WatcherState.HALTED})
_WAITING = frozenset({WatcherState.DRAINING, WatcherState.PAUSED})
_BROKEN = frozenset({WatcherState.BACKING_OFF, WatcherState.HALTED})

# A primary writes a no-op every 10 s (mongod, periodicNoopIntervalSecs), and an idle shard holds
# a stream back by as much: within that, a stream whose reply is empty has seen everything.
_CAUGHT_UP_SECONDS = 10

_SILENCE_SECONDS = 10.0
"""Beyond the time that a read may wait for a change: a stream without an answer for so long is
behind whatever the server tells others."""


@dataclass(slots=True)
class WatcherStatus:
    """The facts that the watcher notes as it goes; everything is unknown (``None``) at first.

    Lags are differences of the server's own times. ``clock``, which all watchers share, tells the
    server's time where the stream does not: it waits for handlers, is halted, or cannot reach the
    server. ``await_seconds`` is how long a read may wait for a change (mongod's default: 1 s).
    """

    scope: Scope
    clock: ServerClock = field(default_factory=ServerClock)
    await_seconds: float = 1.0
    state: WatcherState = WatcherState.STARTING
    reason: str = ""
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    watermark: Watermark | None = None
    checkpoint: Checkpoint | None = None
    server_time: Timestamp | None = None
    read_time: Timestamp | None = None
    handled_time: Timestamp | None = None
    """Up to here everything is handled, whatever is in flight; and likewise committed:"""
    committed_time: Timestamp | None = None
    unplaced: bool = False
    """Events were read that are not in flight yet: they wait for room, or for their transaction."""
    last_round_trip: float | None = None
    heard: float | None = None
    """The same moment by the clock that is never set."""
    entered: float = field(default_factory=time.monotonic)
    """When it came into its state, by that clock."""
    errors: RecentErrors = field(default_factory=RecentErrors)
    events: int = 0
    resumes: int = 0
    restarts: int = 0
    recorders: Mapping[str, HandlerRecorder] = field(default_factory=dict)

    def enter(self, state: WatcherState, reason: str = "") -> bool:
        """Says whether that is a change."""
        if (state, reason) == (self.state, self.reason):
            return False
        self.state, self.reason, self.since = state, reason, datetime.now(UTC)
        self.entered = time.monotonic()
        return True

    @property
    def explanation(self) -> str:
        """The reason; where none is given, which handler call is waited for."""
        return self.reason or (waits_for(self.scope.name) if self.state in _WAITING else "")

    def failed(self, message: str) -> None:
        """Notes an error for ``/status``."""
        self.errors.note(message)

    @property
    def last_error(self) -> str:
        """The newest error, or nothing."""
        return self.errors.last.message if self.errors.last is not None else ""

    def round_trip(self, server_time: Timestamp | None) -> None:
        """The server answered; its time never goes backwards here."""
        self.last_round_trip, self.heard = time.time(), time.monotonic()
        self.clock.answered(server_time)
        if server_time is not None and (self.server_time is None or server_time > self.server_time):
            self.server_time = server_time

    def begin(self, watermark: Watermark) -> None:
        """A run begins where the watermark stands."""
        self.watermark, self.unplaced = watermark, False
        self.read_time = self.handled_time = watermark.position.cluster_time
        self.committed_time = self.checkpoint.cluster_time if self.checkpoint else None

    def saved(self, checkpoint: Checkpoint) -> None:
        """The store has it."""
        self.checkpoint = checkpoint
        self.committed_time = _later(self.committed_time, checkpoint.cluster_time)
        self.finished()

    def arrived(self, batch: Batch) -> None:
        """A reply has come; its events have no place until :meth:`placed`.

        Handlers wait for them: whatever else is to be noted has time until :meth:`read`.
        """
        self.unplaced = self.unplaced or bool(batch.bounds)

    def finished(self) -> None:
        """Something is done. If it was all, that is how far it has come, whatever is read next."""
        if self._all_handled:
            self.handled_time = _later(self.handled_time, self.read_time)
            if self._is_mark_saved:
                self.committed_time = _later(self.committed_time, self.read_time)

    def read(self, batch: Batch, *, opening: bool = False) -> WatcherState:
        """Takes the position behind a reply; returns whether the stream has caught up.

        An ``opening`` reply has no events, whatever there is: the server has not looked yet.
        """
        behind = batch.token.cluster_time if batch.token is not None else None
        if behind is None and (last := batch.last) is not None:
            behind = last.cluster_time
        if behind is not None:
            self.read_time = behind
        elif not len(batch) and not (opening and self.read_time):
            # An empty reply whose token's time cannot be read: the server found nothing up to now.
            self.read_time = self.server_time
        self.finished()
        if len(batch):
            return WatcherState.STREAMING
        if opening:
            unsearched = self.read_time != _later(self.server_time, self.read_time)
            return WatcherState.CATCHING_UP if unsearched else WatcherState.CAUGHT_UP
        lag = _seconds(self.server_time, self.read_time)
        is_behind = lag is not None and lag > _CAUGHT_UP_SECONDS
        return WatcherState.CATCHING_UP if is_behind else WatcherState.CAUGHT_UP

    def placed(self, *, but_some: bool = False) -> None:
        """All events that were read are in flight, or all ``but_some``."""
        self.unplaced = but_some

    @property
    def lags(self) -> dict[str, float]:
        """Seconds of cluster time behind the server by stage; a stage is missing while unknown.

        A stage that waits for nothing but the next change is as far as the one before it.
        """
        if self.state is WatcherState.STOPPED:
            return {}
        handled, committed = self.read_time, None
        if not self._all_handled and self.watermark is not None:
            handled = _later(self.handled_time, self.watermark.position.cluster_time)
        if self.checkpoint is not None:
            all_committed = self._all_handled and self._is_mark_saved
            committed = handled if all_committed else self.committed_time
            if self.state in _BROKEN:
                # What counts now is where it goes on from.
                committed = self.checkpoint.cluster_time
        stages = {"read": self.read_time, "handled": handled, "committed": committed}
        now = self._now
        lags = {stage: _seconds(now, reached) for stage, reached in stages.items()}
        return {stage: lag for stage, lag in lags.items() if lag is not None}

    @property
    def _all_handled(self) -> bool:
        return not self.unplaced and (self.watermark is None or self.watermark.empty)

    @property
    def _is_mark_saved(self) -> bool:
        """Whether no event has been handled since the checkpoint; a bookmark is none."""
        watermark, saved = self.watermark, self.checkpoint
        if watermark is None or saved is None:
            return False
        return watermark.position.event_token == saved.event_token

    @property
    def _now(self) -> Timestamp | None:
        """The server's time.

        While the stream reads it is that of its own replies: by any other, an idle stream would
        be behind each time the server's clock moves, until its next reply. In every other state,
        and where replies stay out, it goes on without the stream.
        """
        silent = (
            self.heard is not None
            and time.monotonic() - self.heard > self.await_seconds + _SILENCE_SECONDS
        )
        if self.state in _TOLD and not silent:
            return self.server_time
        return _later(self.server_time, self.clock.now())

    def gauges(self) -> ScopeGauges:
        """For a scrape."""
        watermark = self.watermark
        return ScopeGauges(
            state=self.state.value,
            in_flight_events=watermark.events if watermark else 0,
            in_flight_bytes=watermark.size if watermark else 0,
            lags=self.lags,
            checkpoint_saved_at=self.checkpoint.saved_at.timestamp() if self.checkpoint else None,
            last_round_trip=self.last_round_trip,
        )

    def sample(self) -> Sample:
        """For the history."""
        return Sample(self.state.value, self.lags.get("handled"), self.events, self.errors.count)

    def document(self) -> dict[str, Any]:
        """For ``/status``: JSON types; tokens as digests."""
        watermark, saved, last = self.watermark, self.checkpoint, self.errors.last
        return {
            "state": self.state.value,
            "reason": self.explanation,
            "since": self.since.isoformat(),
            "follows": str(self.scope),
            "kind": self.scope.kind,
            "position": _position(watermark.position) if watermark else None,
            "checkpoint": saved
            and {
                **_position(saved),
                "epoch": saved.epoch,
                "sequence": saved.sequence,
                "saved_at": saved.saved_at.isoformat(),
            },
            "lag_seconds": self.lags,
            "in_flight": {
                "events": watermark.events if watermark else 0,
                "bytes": watermark.size if watermark else 0,
            },
            "last_round_trip": _iso(self.last_round_trip),
            "resumes": self.resumes,
            "restarts": self.restarts,
            "events": self.events,
            "handlers": {
                name: {
                    **recorder.outcomes,
                    "retries": recorder.retries,
                    "overdue": recorder.overdue,
                    "waiting": recorder.waiting,
                }
                for name, recorder in self.recorders.items()
            },
            "last_error": last.message if last else None,
            "last_error_at": last.last_at.isoformat() if last else None,
            "errors": self.errors.documents(),
        }


def _position(position: Position | Checkpoint) -> dict[str, Any]:
    token = position.high_water or position.event_token
    time = position.cluster_time
    return {
        "kind": position.kind.value,
        "token": token.digest if token else None,
        "cluster_time": _iso(time.time) if time else None,
        "ahead": {name: _progress(one) for name, one in position.ahead.items()},
    }


def _progress(one: Progress) -> dict[str, Any]:
    """What one handler has beyond the position: all up to a time, and single later changes."""
    time = one.cluster_time
    return {"cluster_time": _iso(time.time) if time else None, "changes": len(one.handled)}


def _later(one: Timestamp | None, other: Timestamp | None) -> Timestamp | None:
    if one is None or other is None:
        return one or other
    return max(one, other)


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _seconds(server: Timestamp | None, reached: Timestamp | None) -> float | None:
    if server is None or reached is None:
        return None
    return float(max(server.time - reached.time, 0))
