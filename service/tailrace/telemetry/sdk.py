"""The SDK as the settings say: a resource, a sampler, and exporters by OTLP over HTTP."""

import os
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind, Tracer, format_span_id, format_trace_id
from prometheus_client import CollectorRegistry

from tailrace.config.telemetry import TelemetrySettings, collector_url
from tailrace.engine import Handler
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import ConfigurationError, Problem, Unavailable
from tailrace.model import Scope
from tailrace.snapshot.server import SnapshotServer
from tailrace.stream import Driver
from tailrace.telemetry.calls import traced
from tailrace.telemetry.exporting import CollectorState, LastMessages, ReportedExporter, SendFailure
from tailrace.telemetry.metrics import MetricsSender
from tailrace.telemetry.session import CollectorSession
from tailrace.telemetry.source import TracedDriver, TracedServer
from tailrace.telemetry.spans import SpanSeries
from tailrace.telemetry.store import TracedStore
from tailrace.tracing import Tracing
from tailrace.version import __version__

_DEFAULT_ENDPOINT = "http://localhost:4318"
"""https://opentelemetry.io/docs/specs/otel/protocol/exporter/"""
FLUSH_SECONDS = 2.0
"""How long the end waits for the collector, for spans and for metrics: less than closing may take
(shutdown.CLOSING_SECONDS)."""
_MOST_POINTS = 5000
"""Of a request: receivers refuse large ones."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Implements :class:`tailrace.tracing.Tracing`."""

    tracer: Tracer

    def driver(self, scope: str, driver: Driver) -> Driver:
        openings, look_ups = self._commands(), self._commands()
        return TracedDriver(driver, scope, self.tracer, openings, look_ups)

    def server(self, scope: str, server: SnapshotServer) -> SnapshotServer:
        return TracedServer(server, scope, self._commands())

    def store(self, scope: str, store: CheckpointStore) -> CheckpointStore:
        return TracedStore(store, scope, SpanSeries(self.tracer, SpanKind.INTERNAL))

    def handler(self, scope: Scope, handler: Handler) -> Handler:
        return traced(handler, scope, self.tracer)

    def _commands(self) -> SpanSeries:
        return SpanSeries(self.tracer, SpanKind.CLIENT)

    def ids(
        self, logger: object, method: str, line: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            line["trace_id"] = format_trace_id(context.trace_id)
            line["span_id"] = format_span_id(context.span_id)
        return line


@asynccontextmanager
async def opened(
    settings: TelemetrySettings, registry: CollectorRegistry
) -> AsyncIterator[Tracing | None]:
    """See :func:`tailrace.telemetry.opening.telemetry`."""
    last = LastMessages()
    with last.installed():
        async with AsyncExitStack() as stack:
            if settings.metrics:
                await stack.enter_async_context(_metrics(settings, registry, last.metrics))
            spans = _spans(settings, last.traces) if settings.traces else nullcontext()
            tracing = await stack.enter_async_context(spans)
            last.warn_of_ignored()
            yield tracing


def problems_of(settings: TelemetrySettings) -> Iterator[Problem]:
    """See :func:`tailrace.telemetry.opening.problems_of`."""
    last, found = LastMessages(), list[Problem]()
    with last.installed():
        for wanted, made in ((settings.metrics, _metric_export), (settings.traces, _span_export)):
            try:
                if wanted:
                    made(settings, last.metrics).shutdown()
            except ConfigurationError as error:
                found += error.problems
    yield from dict.fromkeys(found)  # a variable may be of both


@contextmanager
def _reading_variables() -> Iterator[None]:
    """Raises :class:`ConfigurationError` for a variable that the SDK refuses."""
    try:
        yield
    except ValueError as error:
        message = f"a variable of OpenTelemetry has a value that cannot be used: {error}"
        raise ConfigurationError(Problem("telemetry", message)) from error


@dataclass(frozen=True, slots=True)
class SpanExport:
    """What sends spans to the collector."""

    provider: TracerProvider
    exporter: OTLPSpanExporter

    def shutdown(self) -> None:
        """Sends what is left, and waits for it."""
        self.provider.shutdown()


def _span_export(settings: TelemetrySettings, reason: SendFailure) -> SpanExport:
    """Raises :class:`ConfigurationError`."""
    url, ratio = _endpoint(settings, "traces"), settings.sample_ratio
    headers = _headers(settings)
    with _reading_variables():
        exporter = OTLPSpanExporter(endpoint=url, headers=headers, session=CollectorSession(reason))
        reported = ReportedExporter(exporter, CollectorState("traces", url, reason))
        provider = TracerProvider(
            sampler=None if ratio is None else ParentBasedTraceIdRatio(ratio),
            resource=resource_of(settings),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(BatchSpanProcessor(reported))
    return SpanExport(provider, exporter)


@asynccontextmanager
async def _spans(settings: TelemetrySettings, reason: SendFailure) -> AsyncIterator[Spans]:
    export = _span_export(settings, reason)
    provider, exporter = export.provider, export.exporter
    trace.set_tracer_provider(provider)  # spans of handlers and of their libraries join ours
    try:
        yield Spans(provider.get_tracer("tailrace", __version__))
    finally:
        with anyio.move_on_after(FLUSH_SECONDS, shield=True):
            await anyio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)
        exporter.shutdown()  # type: ignore[no-untyped-call] # ends an attempt that is under way


@dataclass(frozen=True, slots=True)
class MetricExport:
    """What sends metrics to the collector at ``url``, and how often."""

    url: str
    exporter: OTLPMetricExporter
    resource: Resource
    seconds: float

    def shutdown(self) -> None:
        """Sends nothing any more."""
        self.exporter.shutdown()


def _metric_export(settings: TelemetrySettings, reason: SendFailure) -> MetricExport:
    """Raises :class:`ConfigurationError`."""
    url, headers = _endpoint(settings, "metrics"), _headers(settings)
    with _reading_variables():
        exporter = OTLPMetricExporter(
            endpoint=url,
            headers=headers,
            session=CollectorSession(reason),
            max_export_batch_size=_MOST_POINTS,
        )
        return MetricExport(url, exporter, resource_of(settings), _interval())


@asynccontextmanager
async def _metrics(
    settings: TelemetrySettings, registry: CollectorRegistry, reason: SendFailure
) -> AsyncIterator[None]:
    export = _metric_export(settings, reason)
    sender = MetricsSender(
        registry,
        export.exporter,
        CollectorState("metrics", export.url, reason),
        export.resource,
        InstrumentationScope("tailrace", __version__),
        export.seconds,
    )
    failure = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sender.run, name="metrics by OTLP")
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below: the group would wrap it
            failure = error
        finally:
            tasks.cancel_scope.cancel()
    with anyio.move_on_after(FLUSH_SECONDS, shield=True):
        await sender.send()
    export.shutdown()
    if failure is not None:
        raise failure


def _interval() -> float:
    """The seconds between two reports of metrics."""
    variable = "OTEL_METRIC_EXPORT_INTERVAL"
    text = os.environ.get(variable) or "60000"
    if not text.isdecimal() or not int(text):
        message = f"{variable} is {text!r}, and not a number of milliseconds"
        raise ConfigurationError(Problem("telemetry", message))
    return int(text) / 1000


def resource_of(settings: TelemetrySettings) -> Resource:
    """Who sends: the attributes of the settings, else those of the environment."""
    attributes: dict[str, Any] = {SERVICE_VERSION: __version__, **settings.resource}
    if settings.service_name is not None:
        attributes[SERVICE_NAME] = settings.service_name
    resource = Resource.create(attributes)
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "tailrace"}))
    return resource


def _endpoint(settings: TelemetrySettings, signal: str) -> str:
    """The URL for a signal: that of the settings, else as the environment says."""
    own, of_all = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    if settings.endpoint is not None:
        return f"{_read('endpoint', settings.endpoint.read).rstrip('/')}/v1/{signal}"
    variable = own if os.environ.get(own) else of_all
    url = os.environ.get(variable) or _DEFAULT_ENDPOINT
    try:
        collector_url(url)
    except ValueError as error:
        raise ConfigurationError(Problem("telemetry", f"{variable} {error}")) from error
    return url if variable == own else f"{url.rstrip('/')}/v1/{signal}"


def _headers(settings: TelemetrySettings) -> dict[str, str] | None:
    """Headers of requests; ``None``: as the environment says."""
    headers = {n: _read(f"headers.{n}", each.read) for n, each in settings.headers.items()}
    return headers or None


def _read(key: str, read: Callable[[], str]) -> str:
    try:
        return read()
    except Unavailable as error:
        raise ConfigurationError(Problem(f"telemetry.{key}", str(error))) from error
