"""The composition root: configuration in, a running service out; signals; the exit code.

The nesting of ``async with``, read inside out, is the shutdown order: watchers drain and save,
cursors are killed and the client closes, handlers and the store close, and the HTTP server is last.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Any

import anyio
import structlog

from tailrace.assembly import (
    access_of,
    inquiries,
    leases_of,
    runtime_of,
    server_store,
)
from tailrace.config.settings import Settings
from tailrace.config.subscriptions import max_lags, most_streams, rounds
from tailrace.control.api import Api, Health
from tailrace.control.control import Control
from tailrace.drivers import DRIVERS, CommandDriver, identify
from tailrace.engine import (
    ClusterWatch,
    Runtime,
    Supervisor,
    Watcher,
    WatcherState,
    blocking_handler,
    watch_desired_states,
    watch_letters,
)
from tailrace.errors import ConfigurationError
from tailrace.handlers import check_handlers
from tailrace.handlers.pool import HandlerPool, handlers_of
from tailrace.local_parts import LocalParts, local_parts
from tailrace.memory import settled_memory
from tailrace.observe import logs
from tailrace.observe.access import Access
from tailrace.observe.health_check import page_of
from tailrace.observe.history import History
from tailrace.observe.http import HttpServer, bind
from tailrace.observe.loop_watch import LoopWatch
from tailrace.observe.metrics import Metrics
from tailrace.observe.output import Output
from tailrace.process_status import ProcessStatus
from tailrace.reload import (
    SPARE_STREAMS,
    Clients,
    DesiredConfig,
    Reloader,
    Sighup,
    source_clients,
)
from tailrace.replicas.member_name import require_own_name
from tailrace.shutdown import FAILED, Shutdown
from tailrace.signals import StopSignals
from tailrace.source_settings import require_readable
from tailrace.stores import Store
from tailrace.stream import ServerClock
from tailrace.tracing import plans, watcher
from tailrace.verify.rounds import Rounds
from tailrace.verify.verifications import Verifications
from tailrace.version import __version__
from tailrace.why.lakes_and_tables import PipelineTables


async def serve(
    settings: Settings, signals: StopSignals, output: Output, file: str, tables: PipelineTables
) -> int:
    """Runs the daemon until a signal, or until no scope is running; returns the exit code.

    ``settings`` are those of ``file``, which a reload reads again; ``tables`` its pipeline's.
    """
    if problems := check_handlers(settings.handlers, settings.scopes, settings.routes):
        raise ConfigurationError(*problems)
    listener = bind(settings.http.host, settings.http.port)
    access = access_of(settings, loopback=ip_address(listener.getsockname()[0]).is_loopback)
    service = _Service(settings, signals, output, file, tables, access)
    watch = LoopWatch(service.metrics.loop_lag.observe, blocking_handler)
    with closing(listener) as server_socket, watch.watching():
        server = HttpServer(server_socket, service.api)
        outcome = FAILED
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            service.shutdown.listen()
            service.http_port = server.port
            tasks.start_soon(server.run, name="http")
            tasks.start_soon(service.handle_signals, name="signals")
            service.log.info(
                "service.starting",
                page=page_of(settings.http.host, server.port),
                http_port=server.port,
                changes_need=access.needs,
                version=__version__,
            )
            try:
                outcome = await service.run()
            except Exception as error:  # noqa: BLE001 - raised below, outside the task group
                failure = error
            server.stop()
            service.shutdown.finish()
        if failure is not None:
            raise failure
        return outcome


class _Service:
    """One running service: the state that its signals, health checks and watchers share."""

    def __init__(
        self,
        settings: Settings,
        signals: StopSignals,
        output: Output,
        file: str,
        tables: PipelineTables,
        access: Access,
    ) -> None:
        self.settings = settings
        self._file = file
        self._find, self._open_tables = tables.find, tables.opener(lambda: self.settings)
        self.metrics = Metrics(state.value for state in WatcherState)
        self.metrics.log_lines_dropped = lambda: output.dropped
        self.shutdown = Shutdown(signals, output, lambda: self.settings.shutdown.grace_seconds)
        scopes = self._supervisor = Supervisor(settings.http.liveness_seconds, self.metrics.waiting)
        self._status = status = ProcessStatus(
            scopes, self.shutdown.stop, lambda: self.settings.mongodb.driver
        )
        self._history = History(scopes.readings)
        health = Health(
            scopes.not_alive,
            status.not_ready,
            status.degraded,
            status.document,
            self._history.document,
        )
        self.api = Api(health, self.metrics.registry, access)
        self.log = structlog.get_logger()
        self._sighup = Sighup()
        self._log_fields: Sequence[Any] = ()
        self.http_port = 0

    async def run(self) -> int:
        """Connects, follows all scopes until the stop, drains; returns the exit code."""
        settings = self.settings
        desired = DesiredConfig.of(settings)
        async with AsyncExitStack() as stack:
            registry = self.metrics.registry
            opening = local_parts(settings, desired, registry, self._open_tables)
            local = await stack.enter_async_context(opening)
            if local.tracing is not None:
                self._log_fields = [local.tracing.ids]
            clients = await self._connect(stack, desired)
            if clients is None:
                return self._exit_code()
            store = local.store
            if store is None:
                store = await stack.enter_async_context(server_store(settings, clients))
            if not await self._join(store, local.pool):
                return self._exit_code()
            await self._follow(desired, local, clients, store)
        return self._exit_code()

    async def _connect(self, stack: AsyncExitStack, desired: DesiredConfig) -> Clients | None:
        """The clients of the source; ``None`` if the service is to stop before a server answers."""
        settings = self.settings
        factory, uri = DRIVERS[desired.client.driver], desired.client.uri
        with self.shutdown.stop.interrupts() as connecting:
            cluster = await identify(factory, uri, settings.mongodb.connect_timeout_seconds)
        if connecting.cancelled_caught:
            return None
        self._status.cluster = cluster
        if cluster.doubt:
            self.log.warning("cluster.unidentified", cluster=str(cluster), reason=cluster.doubt)
        opening = source_clients(cluster, most_streams(settings) + SPARE_STREAMS)
        clients = await stack.enter_async_context(opening)
        clients.use(await clients.open(desired.client))
        return clients

    async def _join(self, store: Store, pool: HandlerPool) -> bool:
        """Joins those that share the scopes; whether it did so before the service is to stop."""
        self._status.leases = leases = leases_of(
            self.settings,
            self.http_port,
            store,
            self.metrics,
            self._supervisor.restart,
            pool.entered,
        )
        with self.shutdown.stop.interrupts() as joining:
            if leases is not None:
                await require_own_name(store.leases, leases.me, leases.times)
        return not joining.cancelled_caught

    async def _follow(
        self, desired: DesiredConfig, local: LocalParts, clients: Clients, store: Store
    ) -> None:
        """Follows all scopes until the stop, and drains."""
        settings, supervisor, status = self.settings, self._supervisor, self._status
        cluster, leases = status.cluster, status.leases
        pool, tracing, driver = local.pool, local.tracing, clients.now.driver
        assert cluster is not None  # noqa: S101 - for the type checker
        status.server = watch = ClusterWatch(clients, ServerClock())
        self.metrics.server = watch.gauges
        await require_readable(settings, watch.time)
        runtime = runtime_of(settings, driver, store, cluster, self.metrics, watch, leases)
        planned = plans(settings, handlers_of(pool.open, settings.delivery), driver, tracing)
        supervisor.watchers = [watcher(plan, runtime, tracing) for plan in planned]
        self._asked = partial(inquiries, store=store, tables=self._find)
        reload = Reloader(
            self._file,
            desired,
            pool,
            clients,
            supervisor,
            runtime,
            leases,
            self._apply,
            tracing,
        ).reload
        compared = Verifications(
            lambda: supervisor.watchers,
            lambda: clients.now.driver,
            store.verifications,
            store.dead_letters,
        )
        status.rounds = rounds_of_all = Rounds(
            compared, lambda: rounds(self.settings), self.metrics
        )
        self.api.control = Control(supervisor, runtime, clients, {}, reload, compared)
        self._apply(settings, runtime, driver)
        self.log.info("service.started", cluster=str(cluster), scopes=len(planned))
        with self.shutdown.running, settled_memory():
            try:
                async with anyio.create_task_group() as beside:
                    beside.start_soon(watch.run, name="cluster watch")
                    beside.start_soon(self._history.run, name="history")
                    letters, states = store.dead_letters, store.desired_states
                    beside.start_soon(watch_letters, letters, self.metrics, name="letters")
                    beside.start_soon(watch_desired_states, states, supervisor.apply)
                    beside.start_soon(self._sighup.run, reload, name="reloads by signal")
                    beside.start_soon(rounds_of_all.run, name="verifications")
                    if leases is not None:
                        beside.start_soon(leases.run, self.shutdown.stop, name="leases")
                    await supervisor.run(
                        self.shutdown.stop, leases.follow if leases else Watcher.run
                    )
                    beside.cancel_scope.cancel()  # does not wait for pending answers
            finally:
                if leases is not None:
                    await leases.close()

    def _exit_code(self) -> int:
        return self.shutdown.exit_code(self._supervisor)

    async def handle_signals(self) -> None:
        """Drains, ends and reloads as signals ask."""
        await self.shutdown.handle_signals(self._sighup.request)

    def _apply(self, settings: Settings, runtime: Runtime, server: CommandDriver) -> None:
        """Takes over what belongs to no scope, at the start and from a reload."""
        self.settings = settings
        self._supervisor.silence_seconds = settings.http.liveness_seconds
        self._supervisor.stays = settings.supervisor.when_all_halted == "wait"
        self.metrics.limit_lags(max_lags(settings))
        if self.api.control is not None:
            by_scope = self._asked(settings, server=server)
            self.api.control = replace(self.api.control, runtime=runtime, inquiries=by_scope)
            self.api.access = access_of(settings, loopback=self.api.access.loopback)
        logs.configure(settings.logging.level, settings.logging.format, *self._log_fields)
        self.shutdown.bound()
