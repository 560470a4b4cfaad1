"""From settings to parts. Makes stores, routes, scope_plans; :mod:`tailrace.app` runs them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from tailrace.config import MongodbStoreSettings, ScopeSettings, Settings, SqliteStoreSettings
from tailrace.drivers import DRIVERS, CommandDriver, identify
from tailrace.engine import Handler, Routed, ScopePlan, routed
from tailrace.errors import ConfigurationError
from tailrace.handlers import check_targets
from tailrace.model import Route, Scope
from tailrace.model.failure_policy import Backoff
from tailrace.stores import Store, memory, mongodb, sqlite
from tailrace.stream.aggregate import start_point, stream_options


def require_targets(settings: Settings) -> None:
    """Raises :class:`ConfigurationError` unless every python target imports and fits."""
    problems = check_targets(settings.handlers)
    if problems:
        raise ConfigurationError(*problems)


@asynccontextmanager
async def local_store(settings: Settings) -> AsyncIterator[Store | None]:
    """The store, if it needs no server."""
    match settings.store:
        case SqliteStoreSettings(path=path):
            async with sqlite.open_store(path) as store:
                yield store
        case MongodbStoreSettings():
            yield None
        case _:
            async with memory.open_store() as store:
                yield store


@asynccontextmanager
async def server_store(settings: Settings, driver: CommandDriver) -> AsyncIterator[Store]:
    """The store on the server."""
    chosen = settings.store
    assert isinstance(chosen, MongodbStoreSettings)  # noqa: S101 - local_store had the others
    async with mongodb.open_store(driver, database=chosen.database) as store:
        yield store


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[Store]:
    """The store alone, for the commands that look into it."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(local_store(settings))
        if store is None:
            driver = await stack.enter_async_context(lone_driver(settings))
            store = await stack.enter_async_context(server_store(settings, driver))
        yield store


@asynccontextmanager
async def lone_driver(settings: Settings) -> AsyncIterator[CommandDriver]:
    """A driver for a command, once the server is known to be one that can be followed."""
    factory, uri = DRIVERS[settings.mongodb.driver], settings.mongodb.uri.get_secret_value()
    await identify(factory, uri, settings.mongodb.connect_timeout_seconds)
    async with factory(uri, 1) as driver:
        yield driver


def scope_plans(settings: Settings, handlers: dict[str, Handler]) -> Sequence[ScopePlan]:
    """How each scope is followed."""
    routes = [
        Route(
            route.scope,
            tuple(route.handlers),
            frozenset(route.operations or ()),
            tuple(route.namespaces or ()),
        )
        for route in settings.routes
    ]
    backoff = Backoff(settings.supervisor.first_seconds, settings.supervisor.cap_seconds)
    return [
        ScopePlan(
            scope=Scope(scope.name, scope.database, scope.collection),
            options=stream_options(scope),
            routed=_grouped(scope, routed(scope.name, routes, handlers)),
            backoff=backoff,
            start=start_point(scope),
            stop_on_invalidate=scope.on_invalidate == "stop",
            skip_lost_history=scope.on_history_lost == "skip",
            lanes=settings.delivery.lanes,
            checkpoint_seconds=settings.checkpoint.interval_seconds,
        )
        for scope in settings.scopes
    ]


def _grouped(scope: ScopeSettings, routed: Sequence[Routed]) -> Sequence[Routed]:
    if scope.transactions == "separate":
        return routed
    return [replace(one, handler=replace(one.handler, whole_transactions=True)) for one in routed]
