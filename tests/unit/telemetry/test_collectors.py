"""Collectors that refuse, reject a part, or have a certificate of their own."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from prometheus_client import CollectorRegistry, Counter
from structlog.testing import capture_logs

from tailrace.errors import ConfigurationError
from tailrace.telemetry.opening import telemetry
from tests.otlp import Collector, collecting
from tests.unit.telemetry.sections import settings


async def sent(collector: Collector, **section: Any) -> dict[str, str]:
    """Sends a span, or with ``metrics`` those instead; why it was not taken, by signal."""
    registry = CollectorRegistry()
    Counter("n", "n", registry=registry).inc()
    with capture_logs() as lines:
        async with telemetry(settings(endpoint=collector.url, **section), registry) as tracing:
            if tracing is not None:
                tracing.tracer.start_span("one").end()  # type: ignore[attr-defined]
    return {
        line["signal"]: line["error"] for line in lines if line["event"] == "telemetry.not_sent"
    }


@pytest.mark.parametrize("status", [429, 503])
async def test_a_collector_that_asks_for_a_long_pause_is_named_with_its_status(status: int) -> None:
    with collecting() as collector:
        collector.status, collector.fields = status, {"retry-after": "3600"}
        why = await sent(collector, metrics=True)
    assert why.keys() == {"traces", "metrics"}
    for reason in why.values():
        assert reason.startswith(f"the collector answers {status} ")
        assert reason.endswith(", Retry-After: 3600")


@pytest.mark.parametrize("signal", ["traces", "metrics"])
async def test_what_a_collector_rejects_of_a_request_is_said(signal: str) -> None:
    answer: Any = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 7
    if signal == "metrics":
        answer = ExportMetricsServiceResponse()
        answer.partial_success.rejected_data_points = 7
    answer.partial_success.error_message = "too old"
    with collecting() as collector:
        collector.answer = answer.SerializeToString()
        chosen = {"traces": signal == "traces", "metrics": signal == "metrics"}
        why = await sent(collector, **chosen)
        assert why == {signal: "the collector has rejected 7 of them: too old"}
        for harmless in (ExportTraceServiceResponse().SerializeToString(), b"<html>"):
            collector.answer = harmless
            assert await sent(collector, **chosen) == {}


async def test_a_certificate_of_the_variable_is_trusted_before_that_for_all_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, others = trustme.CA(), trustme.CA()
    for name, authority in (("ours", ours), ("others", others)):
        authority.cert_pem.write_to_path(str(tmp_path / name))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(tmp_path / "ours"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "others"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.issue_cert("localhost").configure_cert(context)
    with collecting(tls=context) as collector:
        assert await sent(collector) == {}
        assert [span.name for span in collector.spans()] == ["one"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5000"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-1"),
    ],
)
async def test_a_variable_that_the_sdk_refuses_is_a_problem_of_the_configuration(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match="a variable of OpenTelemetry has a value"):
        async with telemetry(settings(), CollectorRegistry()):
            pass
