"""The small HTTP server in a thread, and a service whose answers a test sets."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import httpx

from tailrace.observe.access import Access
from tailrace.observe.http import Health, HttpServer, bind
from tailrace.observe.metrics import Metrics, ScopeGauges

HERE = Access(loopback=True)


class Service:
    """What the service reports, and the scopes that it was told to restart."""

    def __init__(self) -> None:
        self.dead: list[str] = []
        self.unready: list[str] = []
        self.degraded: list[str] = []
        self.restarted: list[str] = []
        self.ordered: list[tuple[str, str, tuple[str, ...], str]] = []
        self.status: dict[str, Any] = {"scopes": {"orders": {"state": "streaming", "odd": {1, 2}}}}

    def restart(self, scope: str) -> str:
        if scope == "nowhere":
            raise LookupError(scope)
        if scope == "busy":
            return "scope 'busy' is streaming: only a halted one is restarted"
        self.restarted.append(scope)
        return ""

    def snapshot(self, scope: str, action: str, chosen: tuple[str, ...], filter: str) -> str:
        if scope == "nowhere":
            raise LookupError(scope)
        if filter == "odd":
            raise ValueError("the filter is not Extended JSON")
        if scope == "busy":
            return "snapshot 5f3a is not over"
        self.ordered.append((scope, action, chosen, filter))
        return ""

    @property
    def health(self) -> Health:
        return Health(
            lambda: self.dead,
            lambda: self.unready,
            lambda: self.degraded,
            lambda: self.status,
            self.restart,
            self.snapshot,
        )


@contextmanager
def serving(
    service: Service, access: Access = HERE, patience_seconds: float = 30
) -> Iterator[httpx.Client]:
    """A client of a server with these access rules."""
    metrics = Metrics(["streaming"])
    metrics.watch("orders", lambda: ScopeGauges("streaming"))
    with bind("127.0.0.1", 0) as listener:
        server = HttpServer(
            listener, metrics.registry, service.health, access, patience_seconds=patience_seconds
        )
        thread = threading.Thread(target=anyio.run, args=(server.run,))
        thread.start()
        url = f"http://127.0.0.1:{server.port}"
        try:
            with httpx.Client(base_url=url, trust_env=False) as client:
                yield client
        finally:
            server.stop()
            thread.join()
