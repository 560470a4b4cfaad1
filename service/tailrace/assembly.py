"""Makes parts from settings: stores, routes and scope plans. :mod:`tailrace.app` runs them."""

import secrets
import socket
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import fields, replace
from functools import partial

from tailrace.config.scopes import ScopeSettings
from tailrace.config.settings import Settings
from tailrace.config.snapshots import SnapshotSettings
from tailrace.config.store import MongodbStoreSettings, SqliteStoreSettings, local_token_file
from tailrace.config.subscriptions import (
    beginning_of,
    beginnings,
    most_streams,
    routes_of,
    start_point,
)
from tailrace.destinations.parquet import ParquetHandlerSettings
from tailrace.drivers import DRIVERS, identify, socket_seconds
from tailrace.engine import (
    ByteBudget,
    ClusterWatch,
    Handler,
    PerEvent,
    Routed,
    Runtime,
    ScopePlan,
    routed,
)
from tailrace.engine.plan.source_history import has_change
from tailrace.model import Scope
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.failure_policy import Backoff
from tailrace.model.lease import Member
from tailrace.observe.access import Access
from tailrace.observe.local_token import make_token
from tailrace.observe.metrics import Metrics
from tailrace.replicas.leases import Leases
from tailrace.replicas.times import LeaseTimes
from tailrace.snapshot.filter import text_of
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.server import SnapshotServer
from tailrace.snapshot.snapshots import Snapshots
from tailrace.stores import Store, memory, mongodb, sqlite
from tailrace.stream import ChangeStreamOptions, CommandRunner, Driver
from tailrace.verify.differing_keys import keys_that_differ
from tailrace.why.changes import Server
from tailrace.why.inquiry import Inquiry
from tailrace.why.lakes_and_tables import FindDocument


def local_store(settings: Settings) -> AbstractAsyncContextManager[Store | None]:
    """The store; ``None`` if it is on the server."""
    match settings.store:
        case SqliteStoreSettings(path=path):
            return sqlite.open_store(path)
        case MongodbStoreSettings():
            return nullcontext()
        case _:
            return memory.open_store()


def server_store(settings: Settings, server: CommandRunner) -> AbstractAsyncContextManager[Store]:
    """The store on the server."""
    assert isinstance(settings.store, MongodbStoreSettings)  # noqa: S101 - else it is local
    return mongodb.open_store(server, database=settings.store.database)


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[Store]:
    """The store alone, for commands that read or change it."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(local_store(settings))
        if store is None:
            factory, uri = DRIVERS[settings.mongodb.driver], settings.mongodb.uri.get_secret_value()
            await identify(factory, uri, settings.mongodb.connect_timeout_seconds)
            driver = await stack.enter_async_context(factory(uri, 1))
            store = await stack.enter_async_context(server_store(settings, driver))
        yield store


def leases_of(
    settings: Settings,
    http_port: int,
    store: Store,
    metrics: Metrics,
    restart: Callable[[str, str], object],
    entered: Callable[[str], AbstractAsyncContextManager[None]],
) -> Leases | None:
    """The leases of this process; ``None`` without replicas."""
    if settings.replicas is None:
        return None
    host = socket.gethostname()
    name = settings.replicas.name or f"{host}:{http_port}"
    me = Member.named(name, host, secrets.token_hex(4), settings.replicas.max_scopes or 0)
    return Leases(
        [scope.name for scope in settings.scopes],
        me,
        store.leases,
        store.checkpoints,
        metrics,
        LeaseTimes(settings.replicas.lease_seconds),
        settings.shutdown.grace_seconds,
        restart,
        entered=entered,
    )


def runtime_of(
    settings: Settings,
    driver: Driver,
    store: Store,
    cluster: ClusterIdentity,
    metrics: Metrics,
    watch: ClusterWatch,
    leases: Leases | None,
) -> Runtime:
    """What all watchers of a process share."""
    return Runtime(
        driver,
        store.checkpoints,
        store.dead_letters,
        store.desired_states,
        cluster,
        ByteBudget(settings.delivery.max_in_flight_bytes, most_streams(settings)),
        metrics,
        watch.clock,
        has_change=has_change,
        now=watch.time,
        lease=leases.observed if leases is not None else lambda scope: None,
        keys=partial(keys_that_differ, store.verifications),
    )


def access_of(settings: Settings, *, loopback: bool) -> Access:
    """Who may read and change. ``loopback``: only this machine can reach the socket.

    Beyond loopback there is always a token: without a configured one, one is made.
    """
    http = settings.http
    token, file = http.token.get_secret_value() if http.token else "", http.token_file or ""
    if not token and not loopback:
        made = local_token_file(settings.store)
        token, file = make_token(made), str(made)
    return Access(
        loopback=loopback,
        token=token,
        token_file=file,
        protect_reads=http.protect == "everything",
    )


def scope_plans(
    settings: Settings,
    handlers_of: Callable[[str], Mapping[str, Handler]],
    server_of: Callable[[str], SnapshotServer],
    only: Container[str] | None = None,
) -> Sequence[ScopePlan]:
    """The plan of each scope, or ``only`` of these.

    ``handlers_of``: the handlers of a scope, by name. ``server_of``: what its snapshots read from.
    """
    routes = routes_of(settings)
    chosen = [each for each in settings.scopes if only is None or each.name in only]
    handlers = {each.name: routed(each.name, routes, handlers_of(each.name)) for each in chosen}
    return [_plan(settings, each, handlers[each.name], server_of(each.name)) for each in chosen]


def _plan(
    settings: Settings, scope: ScopeSettings, routed: Sequence[Routed], server: SnapshotServer
) -> ScopePlan:
    """How a scope is followed. Its handlers begin together as the scope says, or as the first one
    does if none of them begins so; the others begin apart."""
    begins, shared = beginnings(settings, scope), beginning_of(scope)
    if not any(each.same_as(shared) for each in begins.values()):
        shared = next(iter(begins.values()), shared)
    return ScopePlan(
        scope=target(scope),
        options=_patient(stream_options(scope), settings.mongodb.uri.get_secret_value()),
        routed=[
            replace(
                _grouped(scope, each),
                start=begins[each.name].start,
                rows=partial(_snapshots, scope, begins[each.name].snapshot, server),
                begins_apart=not begins[each.name].same_as(shared),
            )
            for each in routed
        ],
        backoff=Backoff(settings.supervisor.first_seconds, settings.supervisor.cap_seconds),
        start=shared.start,
        stop_on_invalidate=scope.on_invalidate == "stop",
        skip_lost_history=scope.on_history_lost != "halt",
        lanes=settings.delivery.lanes,
        checkpoint_seconds=settings.checkpoint.interval_seconds,
        rows=_snapshots(scope, shared.snapshot, server),
        catch_up_streams=settings.catch_up.streams,
    )


def inquiries(
    settings: Settings, store: Store, server: Server, tables: FindDocument
) -> Mapping[str, Inquiry]:
    """By scope, what can be asked about its documents. ``tables`` finds one in tables."""
    inquiries_by_scope, of_all = {}, routes_of(settings)
    for scope in settings.scopes:
        routes = [route for route in of_all if route.scope == scope.name]
        handlers = {name: settings.handlers[name] for route in routes for name in route.handlers}
        inquiries_by_scope[scope.name] = Inquiry(
            scope=target(scope),
            options=stream_options(scope),
            start=start_point(scope),
            routes=routes,
            lakes={
                name: handler_settings.path
                for name, handler_settings in handlers.items()
                if isinstance(handler_settings, ParquetHandlerSettings)
            },
            checkpoints=store.checkpoints,
            letters=store.dead_letters,
            server=server,
            tables=tables,
            tables_at=settings.pipeline.tables_at(),
        )
    return inquiries_by_scope


def followed_by(settings: Settings) -> dict[str, list[Scope]]:
    """The scopes whose changes each handler gets, by handler."""
    scopes = {scope.name: target(scope) for scope in settings.scopes}
    found: dict[str, dict[str, Scope]] = {}
    for route in settings.routes:
        for name in route.handlers:
            found.setdefault(name, {})[route.scope] = scopes[route.scope]
    return {name: list(each.values()) for name, each in found.items()}


def target(scope: ScopeSettings) -> Scope:
    """The collection, database or cluster that a scope follows."""
    trace = scope.trace.field if scope.trace is not None else ""
    return Scope(scope.name, scope.database, scope.collection, trace)


def stream_options(scope: ScopeSettings) -> ChangeStreamOptions:
    """A scope's options, which have the same names in the configuration."""
    names = {each.name for each in fields(ChangeStreamOptions)} - {"idle_await_ms"}
    options = {name: getattr(scope, name) for name in names}
    options["idle_await_ms"] = max(scope.max_await_time_ms, min(4 * scope.max_await_time_ms, 4000))
    options["pipeline"] = tuple(scope.pipeline)
    options["show_expanded_events"] = scope.show_expanded_events or None
    return ChangeStreamOptions(**options)


def requires_images(scope: ScopeSettings) -> bool:
    """Whether a change without stored images halts the scope."""
    return "required" in (scope.full_document, scope.full_document_before_change)


SPARE_MS = 1000
"""How much longer than the server's wait an answer may take on its way."""


def _patient(options: ChangeStreamOptions, uri: str) -> ChangeStreamOptions:
    """The options with the longer wait of an idle stream cut to what the URI's time-out permits."""
    seconds, wait, idle = socket_seconds(uri), options.max_await_time_ms, options.idle_await_ms
    if not seconds or wait is None or idle is None:
        return options
    return replace(options, idle_await_ms=max(wait, min(idle, int(seconds * 1000) - SPARE_MS)))


def _snapshots(scope: ScopeSettings, chosen: SnapshotSettings, server: SnapshotServer) -> Snapshots:
    options = SnapshotOptions(
        initial=chosen.mode == "initial",
        after_gap=scope.on_history_lost == "snapshot",
        filter=text_of(chosen.filter),
        chunk_documents=chosen.chunk_documents,
        documents_per_second=chosen.documents_per_second,
        parallel=chosen.parallel,
        read_preference=chosen.read_preference,
        images=requires_images(scope),
    )
    return Snapshots(target(scope), server, options)


def _grouped(scope: ScopeSettings, routed: Routed) -> Routed:
    calls = routed.handler.calls
    if scope.transactions == "separate" or isinstance(calls, PerEvent):
        return routed
    whole = replace(calls, whole_transactions=True)
    return replace(routed, handler=replace(routed.handler, calls=whole))
