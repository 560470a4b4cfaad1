"""The metrics of a pipeline that keeps running: names, meanings, labels and values."""

import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

_COUNTERS = {
    "batches": ("Batches of segments that are in the tables.", ()),
    "events": ("Events that were added to the table of changes.", ()),
    "failures": ("Batches and publications that failed.", ()),
    "set_aside": ("Events that cannot be applied to any table.", ()),
    "stage_seconds": ("Seconds that the stages of batches took.", ("stage",)),
}
_GAUGES = {
    "lag_seconds": "Seconds since the first event that is landed and not in the table.",
    "events_waiting": "Events in the table of changes that are not in the table.",
}


class TableMetrics(Collector):
    """The metrics of one pipeline, in their own registry; computed when they are asked for.

    ``waiting``: by table, how many events wait, and the cluster time of the first one in seconds
    since 1970, or ``None``. So the lag grows at each scrape even if the pipeline hangs.
    ``counts``: the value of each counter by its label, which is empty if it has none.
    """

    def __init__(
        self,
        waiting: Callable[[], Mapping[str, tuple[int, float | None]]],
        counts: Callable[[], Mapping[str, Mapping[str, float]]],
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # would double the series
        self.registry = CollectorRegistry(auto_describe=True)
        self._waiting = waiting
        self._counts = counts
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Computes the values of a scrape; called by prometheus_client."""
        now, counts = time.time(), self._counts()
        lag, events = (
            GaugeMetricFamily(f"tailrace_tables_{name}", meaning, labels=("table",))
            for name, meaning in _GAUGES.items()
        )
        for table, (count, oldest) in self._waiting().items():
            lag.add_metric((table,), 0.0 if oldest is None else max(0.0, now - oldest))
            events.add_metric((table,), count)
        yield from (lag, events)
        for name, (meaning, labels) in _COUNTERS.items():
            family = CounterMetricFamily(f"tailrace_tables_{name}", meaning, labels=labels)
            for label, value in counts.get(name, {}).items():
                family.add_metric((label,) if labels else (), value)
            yield family
