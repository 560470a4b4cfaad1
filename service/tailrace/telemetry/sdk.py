"""The SDK as the settings say: a resource, a sampler, and exporters by OTLP over HTTP."""

import os
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import Tracer, format_span_id, format_trace_id
from prometheus_client import CollectorRegistry

from tailrace.config.telemetry import TelemetrySettings, require_url
from tailrace.engine import Handler
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import ConfigurationError, Problem, Unavailable
from tailrace.snapshot.server import SnapshotServer
from tailrace.stream import Driver
from tailrace.telemetry.calls import traced
from tailrace.telemetry.exporting import CollectorState, LastMessage, ReportedExporter
from tailrace.telemetry.source import TracedDriver, TracedServer
from tailrace.telemetry.store import TracedStore
from tailrace.tracing import Tracing
from tailrace.version import __version__

_DEFAULT_ENDPOINT = "http://localhost:4318"
"""https://opentelemetry.io/docs/specs/otel/protocol/exporter/"""
FLUSH_SECONDS = 3.0
"""How long the end waits for the collector: less than closing may take (app.CLOSING_SECONDS)."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Implements :class:`tailrace.tracing.Tracing`."""

    tracer: Tracer

    def driver(self, scope: str, driver: Driver) -> Driver:
        return TracedDriver(driver, scope, self.tracer)

    def server(self, scope: str, server: SnapshotServer) -> SnapshotServer:
        return TracedServer(server, scope, self.tracer)

    def store(self, scope: str, store: CheckpointStore) -> CheckpointStore:
        return TracedStore(store, scope, self.tracer)

    def handler(self, scope: str, handler: Handler) -> Handler:
        return traced(handler, scope, self.tracer)

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
    reason = LastMessage()
    with reason.installed():
        if not settings.traces:
            yield None
            return
        url = _endpoint(settings, "traces")
        exporter = OTLPSpanExporter(endpoint=url, headers=_headers(settings))
        reported = ReportedExporter(exporter, CollectorState("traces", url, reason))
        ratio = settings.sample_ratio
        provider = TracerProvider(
            sampler=None if ratio is None else ParentBasedTraceIdRatio(ratio),
            resource=resource_of(settings),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(BatchSpanProcessor(reported))
        trace.set_tracer_provider(provider)  # spans of handlers and of their libraries join ours
        try:
            yield Spans(provider.get_tracer("tailrace", __version__))
        finally:
            await _within(FLUSH_SECONDS, provider.shutdown)
            exporter.shutdown()  # type: ignore[no-untyped-call] # ends an attempt that is under way


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
        require_url(url)
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


async def _within(seconds: float, call: Callable[[], object]) -> None:
    """Calls something that blocks, in a thread, and leaves it alone if it takes longer."""
    with anyio.move_on_after(seconds, shield=True):
        await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
