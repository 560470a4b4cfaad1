"""The metrics of one service: names, meanings, labels and values.

Events, saves and restarts are counted when they happen, events a batch at a time. Lag, state and
bytes in flight are computed when Prometheus scrapes. A value is absent while unknown.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

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

from tailrace.observe.handler_recorder import SECONDS, HandlerRecorder

_SCOPE = ("scope",)
_HANDLER = ("scope", "handler")

# Metrics that a scrape computes, by name without "tailrace_" and "_total": meaning and labels.
_COUNTERS = {
    "events_handled": ("Events handed to handlers, by outcome.", (*_HANDLER, "outcome")),
    "handler_retries": ("Further attempts after a handler failed.", _HANDLER),
    "dead_letters": ("Events that became dead letters.", _HANDLER),
    "stream_resumes": ("Change streams resumed after an error.", (*_SCOPE, "reason")),
    "snapshot_documents": (
        "Documents of the last snapshot that were delivered.",
        (*_SCOPE, "collection"),
    ),
    "log_lines_dropped": ("Lines of output lost because their reader was gone or too slow.", ()),
}
_GAUGES = {
    "watcher_state": ("1 for the state that the scope is in.", (*_SCOPE, "state")),
    "in_flight_events": ("Events read and not yet handled.", _SCOPE),
    "in_flight_bytes": ("Raw bytes of the events in flight.", _SCOPE),
    "lag_seconds": (
        "Seconds of cluster time between the server and this stage.",
        (*_SCOPE, "stage"),
    ),
    "checkpoint_age_seconds": ("Seconds since the last successful checkpoint save.", _SCOPE),
    "last_round_trip_timestamp_seconds": ("Unix time of the server's last answer.", _SCOPE),
    "dead_letters_waiting": (
        "Dead letters in the store that are neither replayed nor discarded.",
        _HANDLER,
    ),
    "snapshot_remaining_documents": (
        "About how many documents the snapshot has still to read.",
        (*_SCOPE, "collection"),
    ),
    "lease_held": ("1 where this process has the lease of the scope.", _SCOPE),
    "lease_epoch": ("The epoch of the scope's lease: it grows with each owner.", _SCOPE),
    "destination_up": ("1 while the handler's destination answers, 0 in an outage.", _HANDLER),
    "handler_overdue": ("Attempts that still run beyond their time limit.", _HANDLER),
    "server_up": ("1 while the MongoDB server answers, 0 after 2.5 s without any answer.", ()),
    "oplog_window_seconds": (
        "Seconds between the oplog's first and last entry, as last read.",
        (),
    ),
    "oplog_window_age_seconds": ("Seconds since the oplog was last read.", ()),
    "oplog_fill_ratio": (
        "Share of the oplog's size in use; below 1 nothing was truncated yet.",
        (),
    ),
}


@dataclass(frozen=True, slots=True)
class ScopeGauges:
    """The current values of one scope.

    ``lags`` are seconds of cluster time by stage (``read``, ``handled``, ``committed``). The other
    times are Unix time in seconds. ``resumes`` are counts by reason.
    """

    state: str
    in_flight_events: int = 0
    in_flight_bytes: int = 0
    lags: Mapping[str, float] = field(default_factory=dict)
    checkpoint_saved_at: float | None = None
    last_round_trip: float | None = None
    resumes: Mapping[str, int] = field(default_factory=dict)
    snapshot: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By collection: how many documents were delivered, and about how many are left."""
    lease: tuple[bool, int] | None = None
    """Whether this process holds it, and its epoch; ``None`` without replicas."""


@dataclass(frozen=True, slots=True)
class ServerGauges:
    """The current values of the server, and of its oplog as read ``oplog_age`` seconds ago.

    ``oplog_window``: seconds between the oplog's first and last entry; ``oplog_fill``: the share of
    its size that is in use.
    """

    up: bool | None = None
    oplog_window: float | None = None
    oplog_fill: float | None = None
    oplog_age: float | None = None


class _Scrape:
    """The values of one scrape."""

    def __init__(self) -> None:
        self.families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, (meaning, labels) in _COUNTERS.items():
            self.families[name] = CounterMetricFamily(f"tailrace_{name}", meaning, labels=labels)
        for name, (meaning, labels) in _GAUGES.items():
            self.families[name] = GaugeMetricFamily(f"tailrace_{name}", meaning, labels=labels)

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Adds a value with its labels; ``None`` means unknown, and is left out."""
        if value is not None:
            self.families[name].add_metric(labels, value)


class Metrics(Collector):
    """The metrics of one service, in their own registry."""

    def __init__(self, states: Iterable[str]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # would double the series
        self.registry = CollectorRegistry(auto_describe=True)
        self.events = self._counter("events", "Change events read.", "scope", "operation")
        self.saves = self._counter(
            "checkpoint_saves", "Attempts to save a checkpoint, by outcome.", "scope", "outcome"
        )
        self.restarts = self._counter(
            "watcher_restarts", "Scopes started again from their checkpoint.", "scope", "reason"
        )
        self.invalidates = self._counter("invalidates", "Invalidate events read.", "scope")
        self.history_lost = self._counter(
            "history_lost", "Positions for which the server had no history any more.", "scope"
        )
        self.lease_transfers = self._counter(
            "lease_transfers", "Leases that this process has acquired.", "scope", "reason"
        )
        self.loop_lag = Histogram(
            "tailrace_event_loop_lag_seconds",
            "Seconds by which the event loop is late for what is due.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.server: Callable[[], ServerGauges] = ServerGauges
        self.log_lines_dropped: Callable[[], int] = lambda: 0
        self._states = tuple(states)
        self._scopes: dict[str, Callable[[], ScopeGauges]] = {}
        self._recorders: dict[tuple[str, str], HandlerRecorder] = {}
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.registry.register(self)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"tailrace_{name}", meaning, labels, registry=self.registry)

    def recorder(self, scope: str, handler: str) -> HandlerRecorder:
        """The recorder of a handler on a scope; it lasts as long as the process."""
        return self._recorders.setdefault((scope, handler), HandlerRecorder())

    def watch(self, scope: str, source: Callable[[], ScopeGauges]) -> None:
        """Gets the scope's gauges from ``source`` at each scrape; makes its counters visible."""
        self._scopes[scope] = source
        self.invalidates.labels(scope)
        self.history_lost.labels(scope)
        for outcome in ("ok", "error"):
            self.saves.labels(scope, outcome)

    def retain(self, scope: str, handlers: Collection[str] | None) -> None:
        """Forgets other handlers of the scope; without ``handlers``, the scope.

        Its counters stay as they are: a scope may come back.
        """
        if handlers is None:
            self._scopes.pop(scope, None)
        for pair in [*self._recorders]:
            if pair[0] == scope and pair[1] not in (handlers or ()):
                del self._recorders[pair]

    def letters_waiting(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Sets how many dead letters wait, by scope and handler; 0 for pairs not in ``counts``."""
        for pair in counts:
            if pair[0] in self._scopes:  # the handler may no longer be configured
                self.recorder(*pair)
        for pair, recorder in self._recorders.items():
            recorder.waiting = counts.get(pair, 0)

    def collect(self) -> Iterable[Metric]:
        """Computes the values of a scrape; called by prometheus_client."""
        scrape = _Scrape()
        for scope, source in self._scopes.items():
            self._add_scope(scrape.add, scope, source())
        for pair, each in self._recorders.items():
            for outcome, count in each.outcomes.items():
                scrape.add("events_handled", count, *pair, outcome)
            scrape.add("handler_retries", each.retries, *pair)
            scrape.add("handler_overdue", each.overdue, *pair)
            scrape.add("destination_up", each.down_since is None, *pair)
            scrape.add("dead_letters", each.outcomes["dead_letter"], *pair)
            scrape.add("dead_letters_waiting", each.waiting, *pair)
        server = self.server()
        scrape.add("server_up", server.up)
        scrape.add("oplog_window_seconds", server.oplog_window)
        scrape.add("oplog_window_age_seconds", server.oplog_age)
        scrape.add("oplog_fill_ratio", server.oplog_fill)
        scrape.add("log_lines_dropped", self.log_lines_dropped())
        yield from scrape.families.values()
        yield self._handler_seconds()

    def _add_scope(self, add: Callable[..., None], scope: str, gauges: ScopeGauges) -> None:
        for state in self._states:
            add("watcher_state", state == gauges.state, scope, state)
        add("in_flight_events", gauges.in_flight_events, scope)
        add("in_flight_bytes", gauges.in_flight_bytes, scope)
        for stage, lag in gauges.lags.items():
            add("lag_seconds", lag, scope, stage)
        if gauges.checkpoint_saved_at is not None:
            age = max(time.time() - gauges.checkpoint_saved_at, 0.0)
            add("checkpoint_age_seconds", age, scope)
        add("last_round_trip_timestamp_seconds", gauges.last_round_trip, scope)
        for reason, times in gauges.resumes.items():
            add("stream_resumes", times, scope, reason)
        if gauges.lease is not None:
            add("lease_held", gauges.lease[0], scope)
            add("lease_epoch", gauges.lease[1], scope)
        for collection, (documents, left) in gauges.snapshot.items():
            add("snapshot_documents", documents, scope, collection)
            add("snapshot_remaining_documents", left, scope, collection)

    def _handler_seconds(self) -> Metric:
        meaning = "Seconds that one call of a handler took."
        seconds = HistogramMetricFamily("tailrace_handler_seconds", meaning, labels=_HANDLER)
        bounds = [*(str(float(bound)) for bound in SECONDS), "+Inf"]
        for pair, each in self._recorders.items():
            totals = accumulate(each.counts)
            seconds.add_metric(pair, list(zip(bounds, totals, strict=True)), each.seconds)
        return seconds
