"""The metrics of one service: names, meanings, labels and values.

Events, saves and restarts are counted when they happen, events a batch at a time. Lag, state and
bytes in flight are computed when Prometheus scrapes. A value is absent while unknown.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from tailrace.observe.handler_recorder import SECONDS, HandlerRecorder
from tailrace.observe.scrape import ProofGauges, ScopeGauges, Scrape, ServerGauges, calls_of


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
        self.proofs: Callable[[], Mapping[tuple[str, str], ProofGauges]] = dict
        """By scope and handler."""
        self.log_lines_dropped: Callable[[], int] = lambda: 0
        self._states = tuple(states)
        self._scopes: dict[str, Callable[[], ScopeGauges]] = {}
        self._recorders: dict[tuple[str, str], HandlerRecorder] = {}
        self._max_lags: Mapping[tuple[str, str], float] = {}
        self._letters: Mapping[tuple[str, str], int] = {}
        self._removed = set[str]()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.registry.register(self)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"tailrace_{name}", meaning, labels, registry=self.registry)

    def recorder(self, scope: str, handler: str) -> HandlerRecorder:
        """The recorder of a handler on a scope; it lasts as long as the process."""
        recorder = self._recorders.setdefault((scope, handler), HandlerRecorder())
        recorder.freshness.max_lag = self._max_lags.get((scope, handler))
        return recorder

    def limit_lags(self, max_lags: Mapping[tuple[str, str], float]) -> None:
        """By scope and handler, by how many seconds it may be behind the server from now on."""
        self._max_lags = max_lags
        for pair, recorder in self._recorders.items():
            recorder.freshness.max_lag = max_lags.get(pair)

    def watch(self, scope: str, source: Callable[[], ScopeGauges]) -> None:
        """Gets the scope's gauges from ``source`` at each scrape; makes its counters visible."""
        self._scopes[scope] = source
        self._removed.discard(scope)
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
            self._removed.add(scope)
        for pair in [*self._recorders]:
            if pair[0] == scope and pair[1] not in (handlers or ()):
                del self._recorders[pair]

    def letters_waiting(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Sets how many dead letters wait, by scope and handler; 0 for pairs not in ``counts``."""
        ours = self._scopes.keys() | self._removed  # others may share the store
        self._letters = {pair: number for pair, number in counts.items() if pair[0] in ours}
        for pair in self._letters:  # the handler may no longer be configured
            self.recorder(*pair)
        for pair, recorder in [*self._recorders.items()]:
            recorder.waiting = counts.get(pair, 0)
            if pair[0] not in self._scopes and pair not in counts:
                del self._recorders[pair]

    def waiting(self) -> Mapping[tuple[str, str], int]:
        """How many dead letters wait, by scope and handler, also of removed ones."""
        return self._letters

    def collect(self) -> Iterable[Metric]:
        """Takes the values of a scrape; called by prometheus_client."""
        scrape = Scrape(
            self._states,
            {scope: source() for scope, source in self._scopes.items()},
            {pair: calls_of(each) for pair, each in self._recorders.items()},
            self.server(),
            self.proofs(),
            self.log_lines_dropped(),
        )
        return scrape.metrics()
