"""The settings of OpenTelemetry. What a key leaves out, its standard variable says."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from tailrace.config.fields import (
    HEADER_NAME,
    FieldPath,
    Flag,
    Ratio,
    Section,
    Text,
    http_url,
    like,
)
from tailrace.config.secret import Secret, SecretText, SecretUri


def collector_url(text: str) -> str:
    """The URL of a collector. Raises ``ValueError`` for another text."""
    return http_url(text, "http://collector:4318")


def _collector(secret: Secret) -> Secret:
    collector_url(secret.read())
    return secret


HeaderName = Annotated[str, like(HEADER_NAME, "must be the name of a header")]


class TelemetrySettings(Section):
    """Traces and metrics for a collector of OpenTelemetry, by OTLP over HTTP. Needs the extra
    `otel`. `telemetry: {}` takes all from the `OTEL_*` variables; without this section nothing is
    sent, whatever they say."""

    endpoint: Annotated[SecretUri, AfterValidator(_collector)] | None = None
    """The URL of the collector without `/v1/traces` and `/v1/metrics`, or `{file: PATH}`. Without
    it, `OTEL_EXPORTER_OTLP_ENDPOINT`, and without that `http://localhost:4318`."""

    headers: Mapping[HeaderName, SecretText] = Field(default_factory=dict)
    """Headers of each request, such as `authorization`: a text, or `{file: PATH}`, which is read at
    the start. Without them, `OTEL_EXPORTER_OTLP_HEADERS`."""

    traces: Flag = True
    """Whether spans are sent."""

    sample_ratio: Ratio | None = None
    """The share of traces that is sent. Without it, `OTEL_TRACES_SAMPLER`, and without that all of
    them."""

    metrics: Flag = False
    """Whether the metrics of `/metrics` are sent, too: every minute, or as
    `OTEL_METRIC_EXPORT_INTERVAL` says."""

    service_name: Text | None = None
    """The resource attribute `service.name`. Without it, `OTEL_SERVICE_NAME`, and without that
    `tailrace`."""

    resource: Mapping[Text, Text] = Field(default_factory=dict)
    """Further attributes of the resource, such as `deployment.environment.name`, beside those of
    `OTEL_RESOURCE_ATTRIBUTES`."""


class TraceSettings(Section):
    """Where documents carry the trace that changed them. Needs no extra."""

    field: FieldPath
    """The field, such as `traceparent` or `meta.trace`. It holds a `traceparent` of W3C Trace
    Context as text, or a document with `traceparent` and `tracestate`. `kafka` and `nats` send it
    as headers, `http` as headers of a request whose events have the same one, and CloudEvents as
    its extension. Anything else in the field is ignored, which the log says once. It is the trace
    of the last change that wrote the field."""
