"""Every metric of the service, declared once: its name, its meaning and its labels."""

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds of the buckets of histograms of time."""


Samples = Iterable[tuple[tuple[str, ...], float | None]]
"""Values at a scrape, each behind the values of its labels; ``None`` is left out."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A metric, which Prometheus shows as ``tailrace_<name>``; a counter's name gets ``_total``."""

    short_name: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name without a suffix of its type."""
        return f"tailrace_{self.short_name}"

    def counter(self, registry: CollectorRegistry) -> Counter:
        """A counter of what happens."""
        return Counter(self.name, self.meaning, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """A histogram of what happens."""
        return Histogram(self.name, self.meaning, self.labels, buckets=SECONDS, registry=registry)

    def gauge(self, samples: Samples) -> Metric:
        """A gauge at a scrape."""
        return _filled(GaugeMetricFamily(self.name, self.meaning, labels=self.labels), samples)

    def count(self, samples: Samples) -> Metric:
        """A counter at a scrape."""
        return _filled(CounterMetricFamily(self.name, self.meaning, labels=self.labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, value)
    return family


EVENTS = Declaration("events", "Change events read.", ("scope", "operation"))
EVENTS_HANDLED = Declaration(
    "events_handled", "Events handed to handlers, by outcome.", ("scope", "handler", "outcome")
)
HANDLER_SECONDS = Declaration(
    "handler_seconds", "Seconds that one call of a handler took.", ("scope", "handler")
)
HANDLER_RETRIES = Declaration(
    "handler_retries", "Further attempts after a handler failed.", ("scope", "handler")
)
HANDLER_OVERDUE = Declaration(
    "handler_overdue", "Attempts that still run beyond their time limit.", ("scope", "handler")
)
DEAD_LETTERS = Declaration("dead_letters", "Events that became dead letters.", ("scope", "handler"))
DEAD_LETTERS_WAITING = Declaration(
    "dead_letters_waiting",
    "Dead letters in the store that are neither replayed nor discarded.",
    ("scope", "handler"),
)
IN_FLIGHT_EVENTS = Declaration("in_flight_events", "Events read and not yet handled.", ("scope",))
IN_FLIGHT_BYTES = Declaration("in_flight_bytes", "Raw bytes of the events in flight.", ("scope",))
LAG_SECONDS = Declaration(
    "lag_seconds", "Seconds of cluster time between the server and this stage.", ("scope", "stage")
)
CHECKPOINT_AGE_SECONDS = Declaration(
    "checkpoint_age_seconds", "Seconds since the last successful checkpoint save.", ("scope",)
)
CHECKPOINT_SAVES = Declaration(
    "checkpoint_saves", "Attempts to save a checkpoint, by outcome.", ("scope", "outcome")
)
STREAM_RESUMES = Declaration(
    "stream_resumes", "Change streams resumed after an error.", ("scope", "reason")
)
WATCHER_RESTARTS = Declaration(
    "watcher_restarts", "Scopes started again from their checkpoint.", ("scope", "reason")
)
WATCHER_STATE = Declaration(
    "watcher_state", "1 for the state that the scope is in.", ("scope", "state")
)
INVALIDATES = Declaration("invalidates", "Invalidate events read.", ("scope",))
HISTORY_LOST = Declaration(
    "history_lost", "Positions for which the server had no history any more.", ("scope",)
)
LAST_ROUND_TRIP = Declaration(
    "last_round_trip_timestamp_seconds", "Unix time of the server's last answer.", ("scope",)
)
SERVER_UP = Declaration("server_up", "1 while the MongoDB server answers, 0 while it does not.")
OPLOG_WINDOW_SECONDS = Declaration(
    "oplog_window_seconds", "Seconds between the oplog's first and last entry, as last read."
)
OPLOG_WINDOW_AGE_SECONDS = Declaration(
    "oplog_window_age_seconds", "Seconds since the oplog was last read."
)
OPLOG_FILL_RATIO = Declaration(
    "oplog_fill_ratio", "Share of the oplog's size in use; below 1 nothing was truncated yet."
)
EVENT_LOOP_LAG_SECONDS = Declaration(
    "event_loop_lag_seconds", "Seconds by which the event loop is late for what is due."
)
LOG_LINES_DROPPED = Declaration(
    "log_lines_dropped", "Lines of output lost because their reader was gone or too slow."
)
