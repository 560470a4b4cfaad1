"""What the section ``telemetry`` says, and what a start does with it."""

import subprocess
import sys
import threading
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tailrace.errors import ConfigurationError
from tailrace.telemetry import opening
from tailrace.telemetry.opening import problems_of, telemetry
from tailrace.telemetry.sdk import resource_of
from tests.otlp import collecting, values
from tests.unit.config.files import minimal, problems
from tests.unit.telemetry.sections import settings


async def test_without_the_section_or_when_disabled_nothing_is_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with telemetry(None, CollectorRegistry()) as tracing:
        assert tracing is None
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with telemetry(settings(), CollectorRegistry()) as tracing:
        assert tracing is None


def test_without_the_section_opentelemetry_is_not_imported() -> None:
    code = "import sys, tailrace.app; sys.exit('opentelemetry' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_missing_extra_is_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda module: None)
    with pytest.raises(ConfigurationError) as caught:
        async with telemetry(settings(), CollectorRegistry()):
            pass
    (problem,) = caught.value.problems
    assert problem.path == "telemetry"
    assert (
        "pip install '.[otel]' in a checkout, or the image's target destinations" in problem.message
    )


def test_another_protocol_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [*problems_of(settings())] == []
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    (problem,) = problems_of(settings())
    assert "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'" in problem.message


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "ENDPOINT must be a URL"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "collector", "METRICS_ENDPOINT must be a URL"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1s", "'1s', and not a number of milliseconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "'0', and not a number of milliseconds"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1", "schedule_delay_millis must be positive"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "max_queue_size must be a positive integer"),
        ("OTEL_SPAN_LINK_COUNT_LIMIT", "many", "OTEL_SPAN_LINK_COUNT_LIMIT must be a"),
    ],
)
async def test_a_check_refuses_the_variables_that_a_start_refuses_in_one_line(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    chosen = settings(metrics=True)
    monkeypatch.setenv(variable, value)
    (problem,) = problems_of(chosen)
    assert message in problem.message
    with pytest.raises(ConfigurationError) as caught:
        async with telemetry(chosen, CollectorRegistry()):
            pass
    assert caught.value.problems == (problem,)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not [*problems_of(chosen)]


async def test_a_value_that_the_sdk_ignores_is_a_warning_without_the_values_of_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "sometimes")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization Bearer hush-hush")
    with collecting() as collector, capture_logs() as lines:
        async with telemetry(settings(endpoint=collector.url, metrics=True), CollectorRegistry()):
            pass
    ignored = [line["error"] for line in lines if line["event"] == "telemetry.value_ignored"]
    for part in ("sometimes", "'soon'", "Header format invalid"):
        assert sum(part in each for each in ignored) == 1, ignored
    assert "hush-hush" not in str(lines)


async def test_a_check_sends_nothing_and_leaves_no_thread() -> None:
    threads = threading.active_count()
    with collecting() as collector:
        during = threading.active_count()
        chosen = settings(endpoint=collector.url, metrics=True)
        assert not [*problems_of(chosen)]
        assert threading.active_count() == during
        assert collector.bodies == []
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("section", "path", "message"),
    [
        ({"endpoint": "collector:4318"}, "endpoint", "must be a URL with a host"),
        ({"endpoint": "grpc://collector:4317"}, "endpoint", "must be a URL with a host"),
        ({"headers": {"a b": "x"}}, "headers", "must be the name of a header"),
        ({"headers": {"a": {"file": "missing"}}}, "headers", "'missing' cannot be read"),
        ({"sample_ratio": 2}, "sample_ratio", "at most 1"),
        ({"traces": "no"}, "traces", "must be true or false"),
        ({"service_name": " "}, "service_name", "must not be empty"),
        ({"end_point": "x"}, "end_point", "did you mean 'endpoint'?"),
    ],
)
def test_a_wrong_value_is_one_problem_with_its_key(
    section: dict[str, Any], path: str, message: str
) -> None:
    ((where, what),) = problems(minimal(telemetry=section)).items()
    assert where.startswith(f"telemetry.{path}")
    assert message in what


def test_service_name_and_resource_are_stronger_than_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert resource_of(settings()).attributes["service.name"] == "tailrace"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "of-the-variable")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=2")
    assert resource_of(settings()).attributes["service.name"] == "of-the-variable"
    attributes = resource_of(settings(service_name="mine", resource={"b": "3"})).attributes
    assert (attributes["service.name"], attributes["a"], attributes["b"]) == ("mine", "1", "3")


async def test_what_is_left_is_sent_at_the_end_and_traces_false_sends_nothing() -> None:
    with collecting() as collector:
        for traces in (False, True):
            chosen = settings(endpoint=collector.url + "/", traces=traces, headers={"k": "v"})
            async with telemetry(chosen, CollectorRegistry()) as tracing:
                assert (tracing is not None) == traces
                if tracing is not None:
                    tracing.tracer.start_span("one").end()  # type: ignore[attr-defined]
        (span,) = collector.spans()
        assert span.name == "one"
        assert values(collector.traces[0].resource.attributes)["service.name"] == "tailrace"
        assert [headers["k"] for headers in collector.headers] == ["v"]


async def test_sample_ratio_leaves_traces_out(own_provider: list[TracerProvider]) -> None:
    with collecting() as collector:
        chosen = settings(endpoint=collector.url, sample_ratio=1e-9)
        async with telemetry(chosen, CollectorRegistry()) as tracing:
            assert tracing is not None
            own_provider[0].get_tracer("mine").start_span("one").end()
        assert collector.bodies == []
