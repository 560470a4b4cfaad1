"""Every metric of the service, declared in one place: name, labels, unit, meaning.

What happens (events, saves, resumes) is counted when it happens, by whole batches. What is (lag,
state, bytes in flight) is asked of the watchers when Prometheus scrapes, so it costs nothing in
between and is absent while unknown.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds of the buckets of histograms of time."""
_SHORTEST = SECONDS[0]


@dataclass(frozen=True, slots=True)
class ScopeGauges:
    """What one watcher says of itself at a scrape. ``None``, or a missing stage, is unknown.

    ``lags`` are seconds of cluster time by stage (``read``, ``handled``, ``committed``); the
    other times are seconds of the Unix clock.
    """

    state: str
    in_flight_events: int = 0
    in_flight_bytes: int = 0
    lags: Mapping[str, float] = field(default_factory=dict)
    checkpoint_saved_at: float | None = None
    last_round_trip: float | None = None


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


class HandlerRecorder:
    """Counts and times the calls of one handler on one scope, in plain integers.

    prometheus_client's histogram takes a lock at each observation, which costs more than some
    handlers do.
    """

    def __init__(self) -> None:
        self.outcomes = {"ok": 0, "error": 0, "dead_letter": 0}
        self.retries = 0
        self.overdue = 0
        self.waiting: int | None = None
        """Dead letters that are unresolved in the store; ``None`` while unknown."""
        self.counts = [0] * (len(SECONDS) + 1)
        self.seconds = 0.0

    def handled(self, seconds: float, events: int) -> None:
        """A call returned."""
        # Most calls fall into the first bucket; the search costs more than such a call.
        self.counts[bisect_left(SECONDS, seconds) if seconds > _SHORTEST else 0] += 1
        self.seconds += seconds
        self.outcomes["ok"] += events

    def failed(self, seconds: float, events: int) -> None:
        """A call raised."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.seconds += seconds
        self.outcomes["error"] += events


class Metrics:
    """The metrics of one service, in a registry of their own."""

    def __init__(self, states: Iterable[str]) -> None:
        # One more series for each counter, which nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        self._states = tuple(states)
        self._sources: dict[str, Callable[[], ScopeGauges]] = {}
        self._recorders: dict[tuple[str, str], HandlerRecorder] = {}
        self._servers: list[Callable[[], ServerGauges]] = []
        self._outputs: list[Callable[[], int]] = []
        self.events = self._counter("events", "Change events read.", "scope", "operation")
        self.saves = self._counter(
            "checkpoint_saves", "Attempts to store a checkpoint.", "scope", "outcome"
        )
        self.resumes = self._counter(
            "stream_resumes", "Change streams resumed after an error.", "scope", "reason"
        )
        self.restarts = self._counter(
            "watcher_restarts", "Watchers started again from their checkpoint.", "scope", "reason"
        )
        self.invalidates = self._counter("invalidates", "Invalidate events read.", "scope")
        self.history_lost = self._counter(
            "history_lost", "Positions that the server had no history for any more.", "scope"
        )
        self.loop_lag = Histogram(
            "tailrace_event_loop_lag_seconds",
            "How late the event loop comes to what is due.",
            buckets=SECONDS,
            registry=self.registry,
        )
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.registry.register(
            _Scraped(self._sources, self._recorders, self._states, self._servers, self._outputs)
        )

    def recorder(self, scope: str, handler: str) -> HandlerRecorder:
        """The recorder of a handler on a scope: one for the life of the process."""
        return self._recorders.setdefault((scope, handler), HandlerRecorder())

    def watch(self, scope: str, source: Callable[[], ScopeGauges]) -> None:
        """Asks ``source`` for the scope's gauges at each scrape; makes its counters visible."""
        self._sources[scope] = source
        self.invalidates.labels(scope)
        self.history_lost.labels(scope)
        for outcome in ("ok", "error"):
            self.saves.labels(scope, outcome)

    def watch_server(self, source: Callable[[], ServerGauges]) -> None:
        """Asks ``source`` at each scrape what is known of the server."""
        self._servers.append(source)

    def letters_waiting(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Notes how many dead letters wait by scope and handler; those not named have none."""
        for pair in counts:
            if pair[0] in self._sources:  # a handler that is no longer configured, perhaps
                self.recorder(*pair)
        for pair, recorder in self._recorders.items():
            recorder.waiting = counts.get(pair, 0)

    def watch_log(self, dropped: Callable[[], int]) -> None:
        """Asks ``dropped`` at each scrape how many lines of output were lost."""
        self._outputs.append(dropped)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"tailrace_{name}", meaning, labels, registry=self.registry)


class _Scraped(Collector):
    """The metrics that are read at a scrape."""

    def __init__(
        self,
        sources: Mapping[str, Callable[[], ScopeGauges]],
        recorders: Mapping[tuple[str, str], HandlerRecorder],
        states: tuple[str, ...],
        servers: Iterable[Callable[[], ServerGauges]],
        outputs: Iterable[Callable[[], int]],
    ) -> None:
        self._sources = sources
        self._recorders = recorders
        self._states = states
        self._servers = servers
        self._outputs = outputs

    def collect(self) -> Iterable[Metric]:
        yield from self._of_scopes()
        yield from self._of_handlers()
        yield from self._of_server()
        lines = CounterMetricFamily(
            "tailrace_log_lines_dropped", "Lines of output that nobody could be given."
        )
        for dropped in self._outputs:
            lines.add_metric((), dropped())
        yield lines

    def _of_server(self) -> Iterable[Metric]:
        up = _gauge("server_up", "1 while the MongoDB server answers, 0 while it does not.")
        window = _gauge(
            "oplog_window_seconds",
            "Seconds between the oplog's first and last entry, as last read.",
        )
        age = _gauge("oplog_window_age_seconds", "Seconds since the oplog was last read.")
        fill = _gauge(
            "oplog_fill_ratio", "Share of the oplog's size in use; below 1 nothing is forgotten."
        )
        for server in self._servers:
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
        state = _gauge("watcher_state", "1 for the state that the watcher is in.", "scope", "state")
        events = _gauge("in_flight_events", "Events read and not yet handled.", "scope")
        size = _gauge("in_flight_bytes", "Raw bytes of the events in flight.", "scope")
        lag = _gauge(
            "lag_seconds",
            "Seconds of cluster time between the server and this stage.",
            "scope",
            "stage",
        )
        age = _gauge("checkpoint_age_seconds", "Since the checkpoint was last stored.", "scope")
        trip = _gauge(
            "last_round_trip_timestamp_seconds", "When the server last answered.", "scope"
        )
        for scope, source in self._sources.items():
            gauges = source()
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
        return state, events, size, lag, age, trip

    def _of_handlers(self) -> Iterable[Metric]:
        handled = Metric(
            "tailrace_events_handled", "Events that handlers were given, by outcome.", "counter"
        )
        retries = CounterMetricFamily(
            "tailrace_handler_retries",
            "Further attempts after a handler failed.",
            labels=("scope", "handler"),
        )
        letters = CounterMetricFamily(
            "tailrace_dead_letters", "Events set aside.", labels=("scope", "handler")
        )
        waiting = _gauge(
            "dead_letters_waiting",
            "Dead letters in the store that are neither replayed nor discarded.",
            "scope",
            "handler",
        )
        overdue = _gauge(
            "handler_overdue", "Attempts that go on beyond their time limit.", "scope", "handler"
        )
        seconds = HistogramMetricFamily(
            "tailrace_handler_seconds",
            "Time of one call of a handler.",
            labels=("scope", "handler"),
        )
        for (scope, handler), recorder in self._recorders.items():
            labels = {"scope": scope, "handler": handler}
            for outcome, count in recorder.outcomes.items():
                handled.add_sample(
                    "tailrace_events_handled_total", {**labels, "outcome": outcome}, count
                )
            retries.add_metric((scope, handler), recorder.retries)
            letters.add_metric((scope, handler), recorder.outcomes["dead_letter"])
            if recorder.waiting is not None:
                waiting.add_metric((scope, handler), recorder.waiting)
            overdue.add_metric((scope, handler), recorder.overdue)
            total, buckets = 0, []
            for bound, count in zip((*SECONDS, float("inf")), recorder.counts, strict=True):
                total += count
                buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
            seconds.add_metric((scope, handler), buckets, recorder.seconds)
        return handled, retries, letters, waiting, overdue, seconds


def _gauge(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tailrace_{name}", meaning, labels=labels)
