"""Opens what the section ``telemetry`` names. Imports opentelemetry only then."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

from prometheus_client import CollectorRegistry

from tailrace.config.telemetry import TelemetrySettings
from tailrace.errors import ConfigurationError, Problem, how_to_install
from tailrace.tracing import Tracing

_NEEDS = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_PROTOCOLS = (
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
)
_PROTOCOL = "http/protobuf"


def problems_of(settings: TelemetrySettings | None) -> Iterator[Problem]:
    """What a start refuses of the settings and of the variables. Sends nothing."""
    if settings is None or _is_disabled():
        return
    if problems := [*_unsupported()]:
        yield from problems
        return
    from tailrace.telemetry.sdk import problems_of

    yield from problems_of(settings)


def _unsupported() -> Iterator[Problem]:
    """What is missing, or cannot be done."""
    if missing := [module for module in _NEEDS if not _is_installed(module)]:
        message = f"needs {', '.join(missing)}, not installed here: {how_to_install('otel')}"
        yield Problem("telemetry", message)
    for variable in _PROTOCOLS:
        if (protocol := os.environ.get(variable) or _PROTOCOL) != _PROTOCOL:
            message = f"{variable} is {protocol!r}, and only {_PROTOCOL} is supported"
            yield Problem("telemetry", f"{message}: unset it, and name a port such as 4318")


@asynccontextmanager
async def telemetry(
    settings: TelemetrySettings | None, registry: CollectorRegistry
) -> AsyncIterator[Tracing | None]:
    """What makes spans in the block, and sends the metrics of ``registry``; ``None`` if nothing is
    to be traced. At the end it sends what is left, for a limited time.

    Raises :class:`ConfigurationError`.
    """
    if settings is None or _is_disabled():
        yield None
        return
    if problems := [*_unsupported()]:
        raise ConfigurationError(*problems)
    from tailrace.telemetry.sdk import opened

    async with opened(settings, registry) as tracing:
        yield tracing


def _is_disabled() -> bool:
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that holds it
        return False
