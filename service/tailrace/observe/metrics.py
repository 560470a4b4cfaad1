"""The metrics of one service, which :mod:`tailrace.observe.declarations` names.

What happens (events, saves, resumes) is counted when it happens, by whole batches. What is (lag,
state, bytes in flight) is asked of the watchers when Prometheus scrapes
(:mod:`tailrace.observe.scrape`), so it costs nothing in between and is absent while unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from tailrace.observe import declarations
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.observe.scrape import ScopeGauges, Scrape, ServerGauges


class Metrics:
    """The metrics of one service, in a registry of their own."""

    def __init__(self, states: Iterable[str]) -> None:
        # One more series for each counter, which nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        self._scrape = Scrape(tuple(states))
        self.events = declarations.EVENTS.counter(self.registry)
        self.saves = declarations.CHECKPOINT_SAVES.counter(self.registry)
        self.restarts = declarations.WATCHER_RESTARTS.counter(self.registry)
        self.invalidates = declarations.INVALIDATES.counter(self.registry)
        self.history_lost = declarations.HISTORY_LOST.counter(self.registry)
        self.loop_lag = declarations.EVENT_LOOP_LAG_SECONDS.histogram(self.registry)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.registry.register(self._scrape)

    def recorder(self, scope: str, handler: str) -> HandlerRecorder:
        """The recorder of a handler on a scope: one for the life of the process."""
        return self._scrape.recorders.setdefault((scope, handler), HandlerRecorder())

    def watch(self, scope: str, source: Callable[[], ScopeGauges]) -> None:
        """Asks ``source`` for the scope's gauges at each scrape; makes its counters visible."""
        self._scrape.scopes[scope] = source
        self.invalidates.labels(scope)
        self.history_lost.labels(scope)
        for outcome in ("ok", "error"):
            self.saves.labels(scope, outcome)

    def watch_server(self, source: Callable[[], ServerGauges]) -> None:
        """Asks ``source`` at each scrape what is known of the server."""
        self._scrape.servers.append(source)

    def letters_waiting(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Notes how many dead letters wait by scope and handler; those not named have none."""
        for pair in counts:
            if pair[0] in self._scrape.scopes:  # a handler that is no longer configured, perhaps
                self.recorder(*pair)
        for pair, recorder in self._scrape.recorders.items():
            recorder.waiting = counts.get(pair, 0)

    def watch_log(self, dropped: Callable[[], int]) -> None:
        """Asks ``dropped`` at each scrape how many lines of output were lost."""
        self._scrape.outputs.append(dropped)
