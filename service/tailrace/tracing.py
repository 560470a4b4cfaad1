"""The port to what makes spans, and what it is put around: nothing at all without it.

So the engine, the stream and the snapshots know nothing of traces, and pay nothing for them.
"""

from collections.abc import Callable, Container, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from tailrace.assembly import scope_plans, target
from tailrace.config.settings import Settings
from tailrace.engine import Handler, Runtime, ScopePlan, Watcher
from tailrace.engine.ports import CheckpointStore
from tailrace.model import Scope
from tailrace.snapshot.server import SnapshotServer
from tailrace.stream import Driver


class Tracing(Protocol):
    """Makes spans of what a scope does, so many of a thing a second. No method fails or waits."""

    def driver(self, scope: str, driver: Driver) -> Driver:
        """The driver, with a span for each reply of a stream and for each look-up."""

    def server(self, scope: str, server: SnapshotServer) -> SnapshotServer:
        """The server, with a span for each chunk of a snapshot."""

    def store(self, scope: str, store: CheckpointStore) -> CheckpointStore:
        """The store, with a span for each save of positions."""

    def handler(self, scope: Scope, handler: Handler) -> Handler:
        """The handler, with spans of its calls, which link to the traces that documents carry."""

    def ids(
        self, logger: object, method: str, line: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Adds the ids of the current span to a line of the log: a processor of structlog."""


def plans(
    settings: Settings,
    handlers_of: Callable[[str], Mapping[str, Handler]],
    server: SnapshotServer,
    tracing: Tracing | None,
    only: Container[str] | None = None,
) -> Sequence[ScopePlan]:
    """The plan of each scope, or ``only`` of these: see :func:`tailrace.assembly.scope_plans`."""
    if tracing is None:
        return scope_plans(settings, handlers_of, lambda scope: server, only)

    scopes = {each.name: target(each) for each in settings.scopes}

    def traced(scope: str) -> Mapping[str, Handler]:
        handlers = handlers_of(scope).items()
        return {name: tracing.handler(scopes[scope], handler) for name, handler in handlers}

    return scope_plans(settings, traced, lambda scope: tracing.server(scope, server), only)


def watcher(plan: ScopePlan, runtime: Runtime, tracing: Tracing | None) -> Watcher:
    """The watcher of a scope."""
    if tracing is None:
        return Watcher(plan, runtime)
    scope = plan.scope.name
    driver, store = tracing.driver(scope, runtime.driver), tracing.store(scope, runtime.store)
    return Watcher(plan, replace(runtime, driver=driver, store=store))
