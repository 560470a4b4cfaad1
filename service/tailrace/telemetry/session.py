"""The HTTP session of an exporter: what the collector answers, and whom it trusts."""

from typing import Any

import requests  # the exporters bring it
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tailrace.telemetry.exporting import SendFailure


class CollectorSession(requests.Session):
    """Notes why the collector does not take a request, or a part of it.

    The SDK's lines say neither: that of a long ``Retry-After`` has no status, and a partial success
    counts as one (https://opentelemetry.io/docs/specs/otlp/#partial-success-1).
    """

    def __init__(self, reason: SendFailure) -> None:
        super().__init__()
        self._reason = reason
        self.hooks["response"].append(self._note)

    def merge_environment_settings(self, *arguments: Any, **more: Any) -> Any:
        """Prefers ``OTEL_EXPORTER_OTLP_CERTIFICATE`` to the variables of requests for all URLs."""
        settings = super().merge_environment_settings(*arguments, **more)
        return settings | ({"verify": self.verify} if isinstance(self.verify, str) else {})

    def _note(self, response: Any, *_: Any, **__: Any) -> None:
        if response.ok:
            self._reason.rejected = rejected(response.content)
            return
        wait = response.headers.get("retry-after")
        text = f"the collector answers {response.status_code} {response.reason}"
        self._reason.text = text + (f", Retry-After: {wait}" if wait else "")


def rejected(body: bytes) -> str:
    """What the answer of a collector says that it has not taken; empty if nothing."""
    try:
        # The answer about metrics has the same form.
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError:
        return ""
    count, message = partial.rejected_spans, partial.error_message
    return f"the collector has rejected {count} of them: {message or '?'}" if count else ""
