"""The metrics that are asked for when Prometheus scrapes: absent while they are unknown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tailrace.observe import declarations
from tailrace.observe.declarations import SECONDS
from tailrace.observe.handler_recorder import HandlerRecorder


@dataclass(frozen=True, slots=True)
class ScopeGauges:
    """What one watcher says of itself at a scrape. ``None``, or a missing stage, is unknown.

    ``lags`` are seconds of cluster time by stage (``read``, ``handled``, ``committed``); the
    other times are seconds of the Unix clock. ``resumes`` are counted by reason.
    """

    state: str
    in_flight_events: int = 0
    in_flight_bytes: int = 0
    lags: Mapping[str, float] = field(default_factory=dict)
    checkpoint_saved_at: float | None = None
    last_round_trip: float | None = None
    resumes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OplogGauges:
    """What was read of the server's oplog ``age`` seconds ago.

    ``window`` is the seconds between its first and its last entry, ``fill`` the share of its size
    that is in use.
    """

    window: float
    fill: float | None
    age: float


@dataclass(frozen=True, slots=True)
class ServerGauges:
    """What is known of the server at a scrape; ``None`` is unknown."""

    up: bool | None
    oplog: OplogGauges | None = None


class Scrape(Collector):
    """Asks everything that was added to it.

    ``scopes`` are asked by name for their gauges, ``recorders`` are by scope and handler,
    ``outputs`` tell how many lines they lost.
    """

    def __init__(self, states: tuple[str, ...]) -> None:
        self.scopes: dict[str, Callable[[], ScopeGauges]] = {}
        self.recorders: dict[tuple[str, str], HandlerRecorder] = {}
        self.servers: list[Callable[[], ServerGauges]] = []
        self.outputs: list[Callable[[], int]] = []
        self._states = states

    def collect(self) -> Iterable[Metric]:
        yield from self._of_scopes()
        yield from self._of_handlers()
        yield from self._of_servers()
        lines = declarations.LOG_LINES_DROPPED.counts()
        for dropped in self.outputs:
            lines.add_metric((), dropped())
        yield lines

    def _of_servers(self) -> Iterable[Metric]:
        up = declarations.SERVER_UP.gauges()
        window = declarations.OPLOG_WINDOW_SECONDS.gauges()
        age = declarations.OPLOG_WINDOW_AGE_SECONDS.gauges()
        fill = declarations.OPLOG_FILL_RATIO.gauges()
        for server in self.servers:
            gauges = server()
            if gauges.up is not None:
                up.add_metric((), float(gauges.up))
            if gauges.oplog is not None:
                window.add_metric((), gauges.oplog.window)
                age.add_metric((), gauges.oplog.age)
                if gauges.oplog.fill is not None:
                    fill.add_metric((), gauges.oplog.fill)
        return up, window, age, fill

    def _of_scopes(self) -> Iterable[Metric]:
        state = declarations.WATCHER_STATE.gauges()
        events = declarations.IN_FLIGHT_EVENTS.gauges()
        size = declarations.IN_FLIGHT_BYTES.gauges()
        lag = declarations.LAG_SECONDS.gauges()
        age = declarations.CHECKPOINT_AGE_SECONDS.gauges()
        trip = declarations.LAST_ROUND_TRIP.gauges()
        resumes = declarations.STREAM_RESUMES.counts()
        for scope, ask in self.scopes.items():
            gauges = ask()
            for name in self._states:
                state.add_metric((scope, name), float(name == gauges.state))
            events.add_metric((scope,), gauges.in_flight_events)
            size.add_metric((scope,), gauges.in_flight_bytes)
            for stage, seconds in gauges.lags.items():
                lag.add_metric((scope, stage), seconds)
            if gauges.checkpoint_saved_at is not None:
                age.add_metric((scope,), max(time.time() - gauges.checkpoint_saved_at, 0.0))
            if gauges.last_round_trip is not None:
                trip.add_metric((scope,), gauges.last_round_trip)
            for reason, count in gauges.resumes.items():
                resumes.add_metric((scope, reason), count)
        return state, events, size, lag, age, trip, resumes

    def _of_handlers(self) -> Iterable[Metric]:
        handled = declarations.EVENTS_HANDLED.counts()
        retries = declarations.HANDLER_RETRIES.counts()
        letters = declarations.DEAD_LETTERS.counts()
        waiting = declarations.DEAD_LETTERS_WAITING.gauges()
        overdue = declarations.HANDLER_OVERDUE.gauges()
        seconds = declarations.HANDLER_SECONDS.times()
        for labels, recorder in self.recorders.items():
            for outcome, count in recorder.outcomes.items():
                handled.add_metric((*labels, outcome), count)
            retries.add_metric(labels, recorder.retries)
            letters.add_metric(labels, recorder.outcomes["dead_letter"])
            if recorder.waiting is not None:
                waiting.add_metric(labels, recorder.waiting)
            overdue.add_metric(labels, recorder.overdue)
            total, buckets = 0, []
            for bound, count in zip((*SECONDS, float("inf")), recorder.counts, strict=True):
                total += count
                buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
            seconds.add_metric(labels, buckets, recorder.seconds)
        return handled, retries, letters, waiting, overdue, seconds
