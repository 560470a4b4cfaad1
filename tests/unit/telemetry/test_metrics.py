"""The metrics of a registry as a collector gets them."""

from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Summary

from tailrace.errors import ConfigurationError
from tailrace.observe.metrics import Metrics
from tailrace.telemetry.opening import telemetry
from tests.otlp import collecting, values
from tests.unit.telemetry.sections import settings


def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    counter = Counter("events", "Events read.", ["scope"], registry=made)
    counter.labels("orders").inc(3)
    counter.labels("users").inc(1)
    Gauge("lag_seconds", "Lag.", registry=made).set(1.5)
    Info("build", "Version.", registry=made).info({"version": "1"})
    histogram = Histogram("call_seconds", "Calls.", ["handler"], buckets=[0.1, 1.0], registry=made)
    for seconds in (0.05, 0.5, 0.6, 7.0):
        histogram.labels("file").observe(seconds)
    Summary("sizes", "Sizes.", registry=made).observe(4)
    return made


async def received(of: CollectorRegistry) -> dict[str, Any]:
    with collecting() as collector:
        chosen = settings(endpoint=collector.url, metrics=True, traces=False, service_name="mine")
        async with telemetry(chosen, of) as tracing:
            assert tracing is None
        assert values(collector.reports[0].resource.attributes)["service.name"] == "mine"
        return collector.metrics()


async def test_metrics_come_with_their_names_labels_and_values() -> None:
    came = await received(registry())
    events = came["events_total"].sum
    assert events.is_monotonic
    assert events.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    points = {values(p.attributes)["scope"]: p.as_double for p in events.data_points}
    assert points == {"orders": 3, "users": 1}
    assert came["events_total"].description == "Events read."
    assert came["lag_seconds"].gauge.data_points[0].as_double == 1.5
    assert values(came["build_info"].gauge.data_points[0].attributes) == {"version": "1"}
    assert came["sizes_sum"].sum.data_points[0].as_double == 4
    (calls,) = came["call_seconds"].histogram.data_points
    assert (list(calls.bucket_counts), list(calls.explicit_bounds)) == ([1, 2, 1], [0.1, 1.0])
    assert (calls.count, round(calls.sum, 2)) == (4, 8.15)
    assert values(calls.attributes) == {"handler": "file"}
    assert not calls.HasField("max")


async def test_all_metrics_of_the_service_can_be_sent() -> None:
    """Those of :mod:`tailrace.observe.metrics`, which are computed when they are read."""
    metrics = Metrics(["streaming"])
    metrics.events.labels("orders", "insert").inc(2)
    metrics.recorder("orders", "file").handled(0.01, 5)
    came = await received(metrics.registry)
    shown = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    plain = {name.removesuffix("_bucket").removesuffix("_count") for name in shown}
    assert {name for name in plain if not name.endswith("_sum")} <= came.keys()
    (handled,) = came["tailrace_handler_seconds"].histogram.data_points
    assert (handled.count, sum(handled.bucket_counts)) == (1, 1)


async def test_a_wrong_interval_of_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "60s")
    with pytest.raises(ConfigurationError, match="OTEL_METRIC_EXPORT_INTERVAL is '60s'"):
        async with telemetry(settings(metrics=True), CollectorRegistry()):
            pass


async def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    with collecting() as collector, pytest.raises(KeyError):
        async with telemetry(settings(endpoint=collector.url, metrics=True), registry()):
            raise KeyError("orders")
