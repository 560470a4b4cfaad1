"""The HTTP server of a pipeline that keeps running: metrics, probes, and the status as JSON.

It runs in a thread with its own event loop, so that it answers while Spark works. Nothing can be
changed there.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from socket import socket
from typing import Any

import structlog
from anyio.from_thread import start_blocking_portal
from prometheus_client.exposition import choose_encoder

from tailrace.observe.access import Access
from tailrace.observe.exchange import Answer, Call, Pace, Request, line
from tailrace.observe.http import HttpServer
from tailrace.observe.table_metrics import TableMetrics
from tailrace.pipeline.follow import Follower
from tailrace.pipeline.freshness import LOG

_log = structlog.get_logger()


@contextmanager
def observed(
    follower: Follower, listener: socket, java_ended: Callable[[], bool]
) -> Iterator[None]:
    """Within this, the pipeline answers over HTTP."""
    host, port = listener.getsockname()[:2]
    metrics = TableMetrics(partial(_waiting, follower), partial(_counts, follower))
    views = _Views(follower, metrics, Access(loopback=ip_address(host).is_loopback), java_ended)
    server = HttpServer(listener, views)
    with start_blocking_portal() as portal:
        served = portal.start_task_soon(server.run, name="http")
        _log.info("http.listening", host=host, port=port)
        try:
            yield
        finally:
            portal.call(server.stop)
            served.result()


@dataclass(frozen=True, slots=True)
class _Views:
    """The application of :class:`tailrace.observe.http.HttpServer`."""

    follower: Follower
    metrics: TableMetrics
    access: Access
    java_ended: Callable[[], bool]

    def find(self, request: Request) -> Answer | Call:
        views = {
            "/livez": self._alive,
            "/readyz": self._ready,
            "/status": self._status,
            "/metrics": self._metrics,
        }
        if refusal := self.access.stranger(request.headers):
            return line(refusal.status, refusal.message)
        view = views.get(request.path)
        if view is None:
            return line(404, f"the paths are: {', '.join(views)}")
        if request.method not in ("GET", "HEAD"):
            return line(405, "only GET", (b"allow", b"GET, HEAD"))  # RFC 9110, 15.5.6
        probe = request.path in ("/livez", "/readyz")

        async def answer(_: bytes) -> Answer:
            return view(request)

        return Call(Pace.AT_ONCE if probe else Pace.IN_TURN, answer)

    def _alive(self, _: Request) -> Answer:
        if self.java_ended():
            return line(503, "Spark's Java process has ended")
        return line(200, "ok")

    def _failure(self, request: Request) -> str:
        """Why the last batch failed. It may quote documents, so that others need the log."""
        failure = self.follower.failure
        return failure if self.access.sees_texts(request.headers) else failure and "see the log"

    def _ready(self, request: Request) -> Answer:
        progress, failure = self.follower.job.progress, self._failure(request)
        reasons = [f"the last batch failed: {failure}"] if failure else []
        reasons += [
            f"scope {scope}: segment {number} is missing, and later segments are there"
            for scope, number in progress.missing.items()
        ]
        if reasons:
            return line(503, "\n".join(reasons))
        if not progress.set_aside:
            return line(200, "ok")
        counted = "events cannot be applied: the table quality counts them"
        return line(200, f"degraded\n{progress.set_aside} {counted}")

    def _status(self, request: Request) -> Answer:
        status = {**_status(self.follower), "failure": self._failure(request) or None}
        body = json.dumps(status, indent=2) + "\n"
        return Answer(200, body.encode(), "application/json")

    def _metrics(self, request: Request) -> Answer:
        encode, kind = choose_encoder(request.headers.get(b"accept", b"").decode("latin-1"))
        return Answer(200, encode(self.metrics.registry), kind)


def _waiting(follower: Follower) -> Mapping[str, tuple[int, float | None]]:
    progress = follower.job.progress
    found: dict[str, tuple[int, float | None]] = {
        name: (each.events, each.oldest) for name, each in progress.waiting.items()
    }
    if follower.failure and found.get(LOG, (0, None))[1] is None:
        # What has landed since cannot be known: it may be as old as the last look.
        found[LOG] = (0, progress.looked_at)
    return found


def _counts(follower: Follower) -> Mapping[str, Mapping[str, float]]:
    done = follower.job.progress
    return {
        "batches": {"": done.batches},
        "events": {"": done.events},
        "failures": {"": follower.failures},
        "set_aside": {"": done.set_aside},
        "stage_seconds": dict(done.seconds),
    }


def _status(follower: Follower) -> Mapping[str, Any]:
    now, job = time.time(), follower.job
    done = job.progress
    return {
        "lake": str(job.lake.location),
        "tables_at": str(job.tables.location),
        **done.report(),
        "batches": done.batches,
        "failures": follower.failures,
        "set_aside": done.set_aside,
        "missing": dict(done.missing),
        "seconds": {stage: round(seconds, 1) for stage, seconds in dict(done.seconds).items()},
        "tables": {
            name: {"lag_seconds": round(each.seconds(now), 1), "events_waiting": each.events}
            for name, each in done.waiting.items()
        },
    }
