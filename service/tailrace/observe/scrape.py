"""The values of one scrape, and the names, meanings and labels of what it computes.

The values are taken in the event loop; their samples are made when the encoder reads them, in its
thread, because there are thousands.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.samples import Sample

from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.observe.metric_names import COUNTERS, GAUGES, HANDLER, HISTOGRAMS

SUBSCRIPTION_STATES = (
    "attached",
    "detached",
    "catching_up",
    "waiting",
    "paused",
    "backing_off",
    "halted",
)
"""Those of :class:`tailrace.engine.status.subscription_state.SubscriptionState` while the scope is
followed here."""


@dataclass(frozen=True, slots=True)
class SubscriptionGauges:
    """The current values of a handler of a scope; its ``lags`` are like those of the scope.

    ``breached``: whether it is further behind than it may be; ``None`` if no route says how far.
    """

    state: str
    lags: Mapping[str, float] = field(default_factory=dict)
    breached: bool | None = None


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
    streams: int = 0
    """How many are open."""
    subscriptions: Mapping[str, SubscriptionGauges] = field(default_factory=dict)
    """By handler."""


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


@dataclass(frozen=True, slots=True)
class ProofGauges:
    """The current values of what verifications of a handler have proven. Times are Unix times.

    ``compared``: documents, in all. ``through``: when the last complete one began, which found so
    many ``differences``. ``late``: from when on there should be a newer one.
    """

    compared: int
    through: float | None = None
    differences: int | None = None
    late: float | None = None


@dataclass(frozen=True, slots=True)
class HandlerCalls:
    """What a recorder has counted, and what the handler's state is, at one moment."""

    outcomes: Mapping[str, int]
    retries: int
    overdue: int
    waiting: int | None
    down: bool
    call_since: float | None
    counts: Sequence[int]
    seconds: float
    latency_counts: Sequence[int]
    latency_seconds: float


def calls_of(recorder: HandlerRecorder) -> HandlerCalls:
    """What a recorder has counted until now."""
    return HandlerCalls(
        dict(recorder.outcomes),
        recorder.retries,
        recorder.overdue,
        recorder.waiting,
        recorder.down_since is not None,
        recorder.call_since,
        tuple(recorder.counts),
        recorder.seconds,
        tuple(recorder.latency.counts),
        recorder.latency.seconds,
    )


@dataclass(slots=True)
class Scrape:
    """The values of one scrape. Their samples are made when they are first read."""

    states: Sequence[str]
    scopes: Mapping[str, ScopeGauges]
    handlers: Mapping[tuple[str, str], HandlerCalls]
    server: ServerGauges
    proofs: Mapping[tuple[str, str], ProofGauges]
    log_lines_dropped: int
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = field(init=False)
    histograms: dict[str, HistogramMetricFamily] = field(init=False)
    _made: bool = False

    def __post_init__(self) -> None:
        self.families = {}
        for name, (meaning, labels) in COUNTERS.items():
            self.families[name] = CounterMetricFamily(f"tailrace_{name}", meaning, labels=labels)
        for name, (meaning, labels) in GAUGES.items():
            self.families[name] = GaugeMetricFamily(f"tailrace_{name}", meaning, labels=labels)
        self.histograms = {
            name: HistogramMetricFamily(f"tailrace_{name}", meaning, labels=HANDLER)
            for name, (meaning, _) in HISTOGRAMS.items()
        }

    def metrics(self) -> Iterable[Metric]:
        """Every family."""
        families = *self.families.values(), *self.histograms.values()
        return (LateMetric(family, self._make) for family in families)

    def _make(self) -> None:
        if self._made:
            return
        self._made = True
        for scope, gauges in self.scopes.items():
            self._add_scope(self._add, scope, gauges)
        for pair, handler in self.handlers.items():
            for outcome, count in handler.outcomes.items():
                self._add("events_handled", count, *pair, outcome)
            self._add("handler_retries", handler.retries, *pair)
            self._add("handler_overdue", handler.overdue, *pair)
            running = time.time() - handler.call_since if handler.call_since is not None else 0
            self._add("handler_call_seconds", max(running, 0), *pair)
            self._add("destination_up", not handler.down, *pair)
            self._add("dead_letters", handler.outcomes["dead_letter"], *pair)
            self._add("dead_letters_waiting", handler.waiting, *pair)
            self._add_histogram("handler_seconds", handler.counts, handler.seconds, pair)
            counts, seconds = handler.latency_counts, handler.latency_seconds
            self._add_histogram("end_to_end_latency_seconds", counts, seconds, pair)
        for pair, proof in self.proofs.items():
            self._add("verified_documents", proof.compared, *pair)
            self._add("verified_through_timestamp", proof.through, *pair)
            self._add("differing_documents", proof.differences, *pair)
            self._add("verification_late_timestamp", proof.late, *pair)
        self._add("server_up", self.server.up)
        self._add("oplog_window_seconds", self.server.oplog_window)
        self._add("oplog_window_age_seconds", self.server.oplog_age)
        self._add("oplog_fill_ratio", self.server.oplog_fill)
        self._add("log_lines_dropped", self.log_lines_dropped)

    def _add(self, name: str, value: float | None, *labels: str) -> None:
        """Adds a value with its labels; ``None`` means unknown, and is left out."""
        if value is not None:
            self.families[name].add_metric(labels, value)

    def _add_histogram(
        self, name: str, counts: Sequence[int], total: float, labels: Sequence[str]
    ) -> None:
        bounds = [*(str(float(bound)) for bound in HISTOGRAMS[name][1]), "+Inf"]
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        self.histograms[name].add_metric(labels, buckets, total)

    def _add_scope(self, add: Callable[..., None], scope: str, gauges: ScopeGauges) -> None:
        for state in self.states:
            add("watcher_state", state == gauges.state, scope, state)
        add("in_flight_events", gauges.in_flight_events, scope)
        add("in_flight_bytes", gauges.in_flight_bytes, scope)
        for stage, lag in gauges.lags.items():
            add("lag_seconds", lag, scope, stage)  # as a label that is empty
        add("streams_open", gauges.streams, scope)
        for handler, subscription in gauges.subscriptions.items():
            for state in SUBSCRIPTION_STATES:
                add("subscription_state", state == subscription.state, scope, handler, state)
            add("freshness_breached", subscription.breached, scope, handler)
            for stage, lag in subscription.lags.items():
                add("lag_seconds", lag, scope, stage, handler)
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


class LateMetric(Metric):
    """A family whose samples are made when they are read: the encoder does so in a thread."""

    def __init__(self, family: Metric, make: Callable[[], None]) -> None:
        self._family, self._make = family, make
        super().__init__(family.name, family.documentation, family.type)

    @property
    def samples(self) -> list[Sample]:
        self._make()
        return self._family.samples

    @samples.setter
    def samples(self, none: list[Sample]) -> None:
        """For the constructor, which sets none."""
