"""What a watcher is doing, for people and for Prometheus."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from bson.timestamp import Timestamp

from service.engine.in_flight import InFlight, Mark
from service.model import Batch, Checkpoint, Scope
from service.observe.metrics import ScopeGauges


class WatcherState(StrEnum):
    """The states of design §2. A watcher never ends but in ``stopped`` or ``halted``."""

    STARTING = "starting"
    STREAMING = "streaming"
    CAUGHT_UP = "caught_up"
    DRAINING = "draining"
    STOPPED = "stopped"
    BACKING_OFF = "backing_off"
    PAUSED = "paused"
    """Reading waits for handlers: the byte budget is spent, or they are a whole reply behind."""
    HALTED = "halted"
    """Needs a person; the reason says why."""


READY = frozenset({WatcherState.STREAMING, WatcherState.CAUGHT_UP, WatcherState.PAUSED})
READING = frozenset({WatcherState.STREAMING, WatcherState.CAUGHT_UP})
ENDED = frozenset({WatcherState.STOPPED, WatcherState.HALTED})

# A primary writes a no-op every 10 s (mongod, periodicNoopIntervalSecs), and an idle shard holds
# a stream back by as much: within that, a stream whose reply is empty has seen everything.
_CAUGHT_UP_SECONDS = 10


@dataclass(slots=True)
class WatcherStatus:
    """The facts that the watcher notes as it goes; everything is unknown (``None``) at first."""

    scope: Scope
    state: WatcherState = WatcherState.STARTING
    reason: str = ""
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    in_flight: InFlight | None = None
    checkpoint: Checkpoint | None = None
    server_time: Timestamp | None = None
    read_time: Timestamp | None = None
    last_round_trip: float | None = None
    last_error: str = ""
    last_error_at: datetime | None = None
    resumes: int = 0
    restarts: int = 0

    def enter(self, state: WatcherState, reason: str = "") -> bool:
        """Says whether that is a change."""
        if (state, reason) == (self.state, self.reason):
            return False
        self.state, self.reason, self.since = state, reason, datetime.now(UTC)
        return True

    def failed(self, message: str) -> None:
        """Notes an error for ``/status``."""
        self.last_error, self.last_error_at = message, datetime.now(UTC)

    def round_trip(self, server_time: Timestamp | None) -> None:
        """The server answered; its time never goes backwards here."""
        self.last_round_trip = time.time()
        if server_time is not None and (self.server_time is None or server_time > self.server_time):
            self.server_time = server_time

    def read(self, batch: Batch) -> WatcherState:
        """Takes the position behind a reply; returns whether the stream has caught up."""
        last = batch.last
        behind = batch.token.cluster_time if batch.token is not None else None
        if behind is None and last is not None:
            behind = last.cluster_time
        if behind is not None:
            self.read_time = behind
        elif not len(batch):
            # An empty reply whose token's time cannot be read: the server found nothing up to now.
            self.read_time = self.server_time
        lag = _seconds(self.server_time, self.read_time)
        if len(batch) or (lag is not None and lag > _CAUGHT_UP_SECONDS):
            return WatcherState.STREAMING
        return WatcherState.CAUGHT_UP

    @property
    def lags(self) -> dict[str, float]:
        """Seconds of cluster time behind the server by stage; a stage is missing while unknown."""
        handled = self.read_time
        if self.in_flight is not None and not self.in_flight.empty:
            handled = self.in_flight.mark.cluster_time
        committed = None
        if self.checkpoint is not None:
            committed = self.checkpoint.cluster_time
            if self.in_flight is not None and _same(self.in_flight.mark, self.checkpoint):
                committed = handled
        stages = {"read": self.read_time, "handled": handled, "committed": committed}
        lags = {stage: _seconds(self.server_time, reached) for stage, reached in stages.items()}
        return {stage: lag for stage, lag in lags.items() if lag is not None}

    def gauges(self) -> ScopeGauges:
        """For a scrape."""
        line = self.in_flight
        return ScopeGauges(
            state=self.state.value,
            in_flight_events=line.events if line else 0,
            in_flight_bytes=line.size if line else 0,
            lags=self.lags,
            checkpoint_saved_at=self.checkpoint.saved_at.timestamp() if self.checkpoint else None,
            last_round_trip=self.last_round_trip,
        )

    def document(self) -> dict[str, Any]:
        """For ``/status``: JSON types; tokens as digests."""
        line, saved = self.in_flight, self.checkpoint
        return {
            "state": self.state.value,
            "reason": self.reason,
            "since": self.since.isoformat(),
            "follows": str(self.scope),
            "kind": self.scope.kind,
            "position": _position(line.mark) if line else None,
            "checkpoint": saved
            and {
                **_position(saved),
                "epoch": saved.epoch,
                "sequence": saved.sequence,
                "saved_at": saved.saved_at.isoformat(),
            },
            "lag_seconds": self.lags,
            "in_flight": {"events": line.events if line else 0, "bytes": line.size if line else 0},
            "last_round_trip": _iso(self.last_round_trip),
            "resumes": self.resumes,
            "restarts": self.restarts,
            "last_error": self.last_error or None,
            "last_error_at": self.last_error_at.isoformat() if self.last_error_at else None,
        }


def _position(mark: Mark | Checkpoint) -> dict[str, Any]:
    token = mark.high_water or mark.event_token
    time = mark.cluster_time
    return {
        "kind": mark.kind.value,
        "token": token.digest if token else None,
        "cluster_time": _iso(time.time) if time else None,
    }


def _same(mark: Mark, checkpoint: Checkpoint) -> bool:
    return mark.high_water == checkpoint.high_water and mark.event_token == checkpoint.event_token


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _seconds(server: Timestamp | None, reached: Timestamp | None) -> float | None:
    if server is None or reached is None:
        return None
    return float(max(server.time - reached.time, 0))
