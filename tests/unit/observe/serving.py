"""The small HTTP server in a thread, and a service whose answers a test sets."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import httpx

from tailrace.control.action import Action
from tailrace.control.actions.snapshot import SnapshotBody
from tailrace.control.actions.why import WhyQuery
from tailrace.control.api import Api, Health
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.seeking import read_token
from tailrace.control.server_positions import read_time
from tailrace.event.key import read_key
from tailrace.observe.access import Access
from tailrace.observe.http import HttpServer, bind
from tailrace.observe.metrics import Metrics
from tailrace.observe.scrape import ScopeGauges

HERE = Access(loopback=True)
BUSY = {
    "restart": "scope 'busy' is streaming: only a halted one is restarted",
    "snapshot": "snapshot 5f3a is not over",
}


class Service:
    """What the service reports, and the scopes that it was told to restart."""

    def __init__(self) -> None:
        self.dead: list[str] = []
        self.unready: list[str] = []
        self.degraded: list[str] = []
        self.restarted: list[str] = []
        self.ordered: list[tuple[str, str, tuple[str, ...], str]] = []
        self.held: threading.Event | None = None
        """If set, questions about documents wait for it."""
        self.status: dict[str, Any] = {"scopes": {"orders": {"state": "streaming", "odd": {1, 2}}}}

    async def perform(self, action: Action, about: str, request: Any) -> Any:
        """What the service answers to an action on a scope or a dead letter."""
        if action.request is SnapshotBody and request.filter == "odd":
            raise ActionRefused(400, "the filter is not Extended JSON")
        self._require(about, BUSY.get(action.name, "it is busy"))
        match action.name:
            case "restart":
                self.restarted.append(about)
                return Done(f"scope {about!r} starts again", "halted", "starting")
            case "dead-letters":
                return '{"count": 0, "next": null, "letters": []}\n'
            case "why":
                return await self._why(about, request)
            case "seek":
                if request.at is not None:
                    read_time(request.at)
                if request.token is not None:
                    read_token(request.token)
            case "replay" if not action.changes:
                return {"scope": about, "replay": self.last_replay()}
        if not action.changes:
            return {"scope": about, "positions": []}
        details = getattr(request, "collections", ()), getattr(request, "filter", "")
        what = getattr(request, "action", action.name)
        self.ordered.append((about, what, tuple(details[0]), details[1]))
        return Done(f"{action.name} is done")

    async def _why(self, scope: str, query: WhyQuery) -> Mapping[str, Any]:
        if self.held is not None:
            await anyio.to_thread.run_sync(self.held.wait)
        try:
            return {"scope": scope, "key": read_key(query.key).text}
        except ValueError as error:
            raise ActionRefused(400, str(error)) from error

    def last_replay(self) -> Mapping[str, Any] | None:
        return None

    def _require(self, scope: str, busy: str) -> None:
        if scope == "nowhere":
            raise ActionRefused(404, "there is no scope 'nowhere'")
        if scope == "busy":
            raise ActionRefused(409, busy)

    @property
    def health(self) -> Health:
        return Health(
            lambda: self.dead,
            lambda: self.unready,
            lambda: self.degraded,
            lambda: self.status,
            lambda: {"at": [], "scopes": {}},
        )

    def api(self, access: Access = HERE) -> Api:
        metrics = Metrics(["streaming"])
        metrics.watch("orders", lambda: ScopeGauges("streaming"))
        api = Api(self.health, metrics.registry, access)
        api.control = self  # type: ignore[assignment]
        api.routes = [
            replace(route, perform=partial(_perform, route)) if isinstance(route, Action) else route
            for route in api.routes
        ]
        return api


async def _perform(action: Action, service: Any, about: str, request: Any, by: str) -> Any:
    return await service.perform(action, about, request)


@contextmanager
def serving(
    service: Service, access: Access = HERE, patience_seconds: float = 30
) -> Iterator[httpx.Client]:
    """A client of a server with these access rules."""
    with bind("127.0.0.1", 0) as listener:
        server = HttpServer(listener, service.api(access), patience_seconds=patience_seconds)
        thread = threading.Thread(target=anyio.run, args=(server.run,))
        thread.start()
        url = f"http://127.0.0.1:{server.port}"
        try:
            with httpx.Client(base_url=url, trust_env=False) as client:
                yield client
        finally:
            server.stop()
            thread.join()
