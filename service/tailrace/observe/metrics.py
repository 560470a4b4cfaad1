"""The metrics of one service, which :mod:`tailrace.observe.declarations` names.

Events, saves and restarts are counted when they happen, by whole batches. Lag, state and bytes in
flight are computed when Prometheus scrapes, and are absent while unknown.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from tailrace.observe import declarations
from tailrace.observe.declarations import SECONDS
from tailrace.observe.gauges import ScopeGauges, ServerGauges
from tailrace.observe.handler_recorder import HandlerRecorder


class Metrics(Collector):
    """The metrics of one service, in a registry of their own."""

    def __init__(self, states: Iterable[str]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # one more series a counter
        self.registry = CollectorRegistry(auto_describe=True)
        self.events = declarations.EVENTS.counter(self.registry)
        self.saves = declarations.CHECKPOINT_SAVES.counter(self.registry)
        self.restarts = declarations.WATCHER_RESTARTS.counter(self.registry)
        self.invalidates = declarations.INVALIDATES.counter(self.registry)
        self.history_lost = declarations.HISTORY_LOST.counter(self.registry)
        self.loop_lag = declarations.EVENT_LOOP_LAG_SECONDS.histogram(self.registry)
        self.server: Callable[[], ServerGauges] = lambda: ServerGauges(None)
        self.log_lines_dropped: Callable[[], int] = lambda: 0
        self._states = tuple(states)
        self._scopes: dict[str, Callable[[], ScopeGauges]] = {}
        self._recorders: dict[tuple[str, str], HandlerRecorder] = {}
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.registry.register(self)

    def recorder(self, scope: str, handler: str) -> HandlerRecorder:
        """The recorder of a handler on a scope: one for the life of the process."""
        return self._recorders.setdefault((scope, handler), HandlerRecorder())

    def watch(self, scope: str, source: Callable[[], ScopeGauges]) -> None:
        """Asks ``source`` for the scope's gauges at each scrape; makes its counters visible."""
        self._scopes[scope] = source
        self.invalidates.labels(scope)
        self.history_lost.labels(scope)
        for outcome in ("ok", "error"):
            self.saves.labels(scope, outcome)

    def letters_waiting(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Sets how many dead letters wait by scope and handler; those not named have none."""
        for pair in counts:
            if pair[0] in self._scopes:  # its handler may not be configured any more
                self.recorder(*pair)
        for pair, recorder in self._recorders.items():
            recorder.waiting = counts.get(pair, 0)

    def collect(self) -> Iterable[Metric]:
        """What is computed at a scrape; prometheus_client calls it."""
        yield from self._of_scopes([((name,), ask()) for name, ask in self._scopes.items()])
        yield from self._of_handlers()
        server = self.server()
        yield declarations.SERVER_UP.gauge([((), server.up)])
        oplog = [((), server.oplog)] if server.oplog else []
        yield declarations.OPLOG_WINDOW_SECONDS.gauge((key, each.window) for key, each in oplog)
        yield declarations.OPLOG_WINDOW_AGE_SECONDS.gauge((key, each.age) for key, each in oplog)
        yield declarations.OPLOG_FILL_RATIO.gauge((key, each.fill) for key, each in oplog)
        yield declarations.LOG_LINES_DROPPED.count([((), self.log_lines_dropped())])

    def _of_scopes(self, scopes: list[tuple[tuple[str], ScopeGauges]]) -> Iterable[Metric]:
        now = time.time()
        yield declarations.WATCHER_STATE.gauge(
            ((*key, state), state == each.state) for key, each in scopes for state in self._states
        )
        yield declarations.IN_FLIGHT_EVENTS.gauge(
            (key, each.in_flight_events) for key, each in scopes
        )
        yield declarations.IN_FLIGHT_BYTES.gauge(
            (key, each.in_flight_bytes) for key, each in scopes
        )
        yield declarations.LAG_SECONDS.gauge(
            ((*key, stage), lag) for key, each in scopes for stage, lag in each.lags.items()
        )
        yield declarations.CHECKPOINT_AGE_SECONDS.gauge(
            (key, max(now - each.checkpoint_saved_at, 0.0))
            for key, each in scopes
            if each.checkpoint_saved_at is not None
        )
        yield declarations.LAST_ROUND_TRIP.gauge(
            (key, each.last_round_trip) for key, each in scopes
        )
        yield declarations.STREAM_RESUMES.count(
            ((*key, reason), times)
            for key, each in scopes
            for reason, times in each.resumes.items()
        )

    def _of_handlers(self) -> Iterable[Metric]:
        known = self._recorders.items()
        yield declarations.EVENTS_HANDLED.count(
            ((*key, outcome), count)
            for key, each in known
            for outcome, count in each.outcomes.items()
        )
        yield declarations.HANDLER_RETRIES.count((key, each.retries) for key, each in known)
        yield declarations.DEAD_LETTERS.count(
            (key, each.outcomes["dead_letter"]) for key, each in known
        )
        yield declarations.DEAD_LETTERS_WAITING.gauge((key, each.waiting) for key, each in known)
        yield declarations.HANDLER_OVERDUE.gauge((key, each.overdue) for key, each in known)
        declared = declarations.HANDLER_SECONDS
        seconds = HistogramMetricFamily(declared.name, declared.meaning, labels=declared.labels)
        bounds = [*(str(float(bound)) for bound in SECONDS), "+Inf"]
        for key, each in known:
            totals = accumulate(each.counts)
            seconds.add_metric(key, list(zip(bounds, totals, strict=True)), each.seconds)
        yield seconds
