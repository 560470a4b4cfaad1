"""Sends the metrics of ``/metrics`` by OTLP, under the same names, as cumulative values.

No library does that: those of OpenTelemetry go the other way, from its instruments to Prometheus.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import anyio
import anyio.to_thread
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

from tailrace.telemetry.exporting import CollectorState

_CUMULATIVE = AggregationTemporality.CUMULATIVE


@dataclass(slots=True)
class MetricsSender:
    """Sends the metrics of a registry every so many seconds, one report after another."""

    registry: CollectorRegistry
    exporter: MetricExporter
    state: CollectorState
    resource: Resource
    scope: InstrumentationScope
    seconds: float
    _began: int = field(default_factory=time.time_ns)
    _thread: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    async def run(self) -> None:
        """Sends until it is cancelled."""
        while True:
            await anyio.sleep(self.seconds)
            await self.send()

    async def send(self) -> None:
        """Sends what the metrics are now. Values are taken here; the rest is done in a thread."""
        families = [*self.registry.collect()]
        await anyio.to_thread.run_sync(
            self._send, families, abandon_on_cancel=True, limiter=self._thread
        )

    def _send(self, families: Sequence[Family]) -> None:
        metrics = [*metrics_of(families, self._began, time.time_ns())]
        scopes = [ScopeMetrics(self.scope, metrics, "")]
        result = self.exporter.export(MetricsData([ResourceMetrics(self.resource, scopes, "")]))
        self.state.note(sent=result is MetricExportResult.SUCCESS)


def metrics_of(families: Iterable[Family], began: int, now: int) -> Iterator[Metric]:
    """The same metrics for OTLP. ``began``: since when they count, ``now``: both as Unix ns."""
    for family in families:
        if family.type == "histogram":
            points = [*_histograms(family.samples, began, now)]
            data = Histogram(points, _CUMULATIVE)
            if points:
                yield Metric(family.name, family.documentation, "", data)
            continue
        by_name: dict[str, list[NumberDataPoint]] = {}
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                point = NumberDataPoint(sample.labels, began, now, float(sample.value))
                by_name.setdefault(sample.name, []).append(point)
        for name, numbers in by_name.items():
            grows = family.type == "counter" or (
                family.type == "summary" and name.endswith(("_count", "_sum"))
            )
            of = Sum(numbers, _CUMULATIVE, is_monotonic=True) if grows else Gauge(numbers)
            yield Metric(name, family.documentation, "", of)


def _histograms(samples: Iterable[Sample], began: int, now: int) -> Iterator[HistogramDataPoint]:
    """A point for the samples with the same labels. Buckets of Prometheus add up, these do not."""
    totals: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for sample in samples:
        labels = {**sample.labels}
        bound = labels.pop("le", "")
        of_labels = totals.setdefault(tuple(labels.items()), {})
        of_labels[bound or sample.name.rpartition("_")[2]] = sample.value
    unknown: Any = None  # Prometheus knows neither the least nor the greatest value
    for pairs, values in totals.items():
        sum_of_all, _ = values.pop("sum", 0.0), values.pop("created", None)
        count = int(values.pop("count", values.get("+Inf", 0)))
        counts = [0, *map(int, values.values())]
        yield HistogramDataPoint(
            dict(pairs),
            began,
            now,
            count,
            sum_of_all,
            [after - before for before, after in pairwise(counts)],
            [float(bound) for bound in values if bound != "+Inf"],
            unknown,
            unknown,
        )
