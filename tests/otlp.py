"""A collector of OpenTelemetry's: an HTTP server that reads the protobufs of OTLP."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """What came, as parsed messages, and as bytes in ``bodies``. ``status``, ``answer`` and
    ``fields``: what it answers."""

    url: str = ""
    status: int = 200
    answer: bytes = b""
    fields: dict[str, str] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    traces: list[Any] = field(default_factory=list)
    reports: list[Any] = field(default_factory=list)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.bodies.append(body)
        self.headers.append(headers)
        if path == "/v1/traces":
            self.traces += ExportTraceServiceRequest.FromString(body).resource_spans
        elif path == "/v1/metrics":
            self.reports += ExportMetricsServiceRequest.FromString(body).resource_metrics

    def spans(self, name: str = "") -> list[Any]:
        """All spans, or those whose name begins so."""
        scopes = [scope for traces in self.traces for scope in traces.scope_spans]
        return [span for each in scopes for span in each.spans if span.name.startswith(name)]

    def metrics(self) -> dict[str, Any]:
        """The last of each name."""
        scopes = [scope for report in self.reports for scope in report.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}


def values(attributes: Any) -> dict[str, Any]:
    """Attributes as plain values."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collecting(port: int = 0, tls: SSLContext | None = None) -> Iterator[Collector]:
    """A collector that listens in the block; with ``tls``, as ``https://localhost``."""
    collector = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            if collector.status == 200:
                named = {name.lower(): value for name, value in self.headers.items()}
                collector.take(self.path, named, body)
            self.send_response(collector.status)
            for name, value in collector.fields.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(collector.answer)))
            self.end_headers()
            self.wfile.write(collector.answer)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        collector.url = f"https://localhost:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
