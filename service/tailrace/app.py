"""The composition root: configuration in, a running service out; signals; the exit code.

The nesting of ``async with``, read inside out, is the shutdown order: watchers drain and save,
cursors are killed and the client closes, handlers and the store close, and the HTTP server is last.
"""

import signal
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from typing import Any

import anyio
import structlog

from tailrace.assembly import (
    access_of,
    inquiries,
    leases_of,
    local_store,
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
from tailrace.handlers.pool import handler_pool, handlers_of
from tailrace.memory import settled_memory
from tailrace.model.cluster import ClusterIdentity
from tailrace.observe import logs
from tailrace.observe.access import Access
from tailrace.observe.health_check import page_of
from tailrace.observe.history import History
from tailrace.observe.http import HttpServer, bind
from tailrace.observe.loop_watch import LoopWatch
from tailrace.observe.metrics import Metrics
from tailrace.observe.output import Output
from tailrace.reload import SPARE_STREAMS, DesiredConfig, Reloader, Sighup, source_clients
from tailrace.replicas.leases import Leases
from tailrace.replicas.member_name import require_own_name
from tailrace.signals import LastResort, StopSignals
from tailrace.source_settings import require_readable
from tailrace.stream import Interrupt, ServerClock
from tailrace.telemetry.opening import telemetry
from tailrace.tracing import plans, watcher
from tailrace.verify.rounds import Rounds
from tailrace.verify.verifications import Verifications
from tailrace.version import __version__
from tailrace.why.lakes_and_tables import PipelineTables

FINISHED, FAILED, USAGE, NOT_DRAINED = 0, 1, 2, 3
"""The documented exit codes."""
CLOSING_SECONDS = 10.0  # after the grace period: for the last saves, killCursors and closing


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
            signals.listen()  # again: a handler's module may have installed its own signal handlers
            service.bound_stop()
            service.http_port = server.port
            tasks.start_soon(server.run, name="http")
            tasks.start_soon(service.handle_signals, name="signals")
            page = page_of(settings.http.host, server.port)
            at = {"page": page, "http_port": server.port, "changes_need": access.needs}
            service.log.info("service.starting", **at, version=__version__)
            try:
                outcome = await service.run()
            except Exception as error:  # noqa: BLE001 - raised below, outside the task group
                failure = error
            server.stop()
            service.done.set()
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
        self._signals = signals
        self._output = output
        self.metrics = Metrics(state.value for state in WatcherState)
        self.metrics.log_lines_dropped = lambda: output.dropped
        scopes = self._supervisor = Supervisor(settings.http.liveness_seconds, self.metrics.waiting)
        self.history = History(scopes.readings)
        health = Health(
            scopes.not_alive, self._not_ready, self._degraded, self._status, self.history.document
        )
        self.api = Api(health, self.metrics.registry, access)
        self._started_at = datetime.now(UTC)
        self.log = structlog.get_logger()
        self.stop, self.done = Interrupt(), Interrupt()
        self._sighup = Sighup()
        self._running = anyio.CancelScope()
        self._cluster: ClusterIdentity | None = None
        self._server: ClusterWatch | None = None
        self._leases: Leases | None = None
        self._rounds: Rounds | None = None
        self._log_fields = list[Any]()
        self.http_port = 0

    async def run(self) -> int:
        """Connects, follows all scopes until the stop, drains; returns the exit code."""
        settings = self.settings
        wanted = DesiredConfig.of(settings)
        factory, uri = DRIVERS[wanted.client.driver], wanted.client.uri
        async with AsyncExitStack() as stack:
            # Local parts are opened first: a corrupt file can be reported without a server.
            registry = self.metrics.registry
            tracing = await stack.enter_async_context(telemetry(settings.telemetry, registry))
            self._log_fields += [tracing.ids] if tracing else []
            store = await stack.enter_async_context(local_store(settings))
            objects = handler_pool(registry, self._open_tables, leased=bool(settings.replicas))
            pool = await stack.enter_async_context(objects)
            pool.use(await pool.add(wanted.handlers.values(), settings.delivery, waits=True))
            with self.stop.interrupts() as connecting:
                wait = settings.mongodb.connect_timeout_seconds
                self._cluster = cluster = await identify(factory, uri, wait)
            if connecting.cancelled_caught:
                return self._outcome()
            if cluster.doubt:
                self.log.warning("cluster.unidentified", cluster=str(cluster), reason=cluster.doubt)
            opening = source_clients(cluster, most_streams(settings) + SPARE_STREAMS)
            clients = await stack.enter_async_context(opening)
            clients.use(await clients.open(wanted.client))
            if store is None:
                store = await stack.enter_async_context(server_store(settings, clients))
            supervisor = self._supervisor
            parts = self.http_port, store, self.metrics, supervisor.restart, pool.entered
            leases = self._leases = leases_of(settings, *parts)
            with self.stop.interrupts() as joining:
                if leases is not None:
                    await require_own_name(store.leases, leases.me, leases.times)
            if joining.cancelled_caught:
                return self._outcome()
            self._server = watch = ClusterWatch(clients, ServerClock())
            self.metrics.server = watch.gauges
            await require_readable(settings, watch.time)
            driver = clients.now.driver
            runtime = runtime_of(settings, driver, store, cluster, self.metrics, watch, leases)
            planned = plans(settings, handlers_of(pool.open, settings.delivery), driver, tracing)
            supervisor.watchers = [watcher(plan, runtime, tracing) for plan in planned]
            self._asked = partial(inquiries, store=store, tables=self._find)
            reload = Reloader(
                self._file, wanted, pool, clients, supervisor, runtime, leases, self._apply, tracing
            ).reload
            now = (lambda: supervisor.watchers), (lambda: clients.now.driver)
            compared = Verifications(*now, store.verifications, store.dead_letters)
            self._rounds = Rounds(compared, lambda: rounds(self.settings), self.metrics)
            self.api.control = Control(supervisor, runtime, clients, {}, reload, compared)
            self._apply(settings, runtime, driver)
            self.log.info("service.started", cluster=str(cluster), scopes=len(planned))
            with self._running, settled_memory():
                try:
                    async with anyio.create_task_group() as beside:
                        beside.start_soon(watch.run, name="cluster watch")
                        beside.start_soon(self.history.run, name="history")
                        letters, states = store.dead_letters, store.desired_states
                        beside.start_soon(watch_letters, letters, self.metrics, name="letters")
                        beside.start_soon(watch_desired_states, states, supervisor.apply)
                        beside.start_soon(self._sighup.run, reload, name="reloads by signal")
                        beside.start_soon(self._rounds.run, name="verifications")
                        if leases is not None:
                            beside.start_soon(leases.run, self.stop, name="leases")
                        await supervisor.run(self.stop, leases.follow if leases else Watcher.run)
                        beside.cancel_scope.cancel()  # does not wait for pending answers
                finally:
                    if leases is not None:
                        await leases.close()
        return self._outcome()

    def _outcome(self) -> int:
        if self._running.cancelled_caught:
            grace = self.settings.shutdown.grace_seconds
            self.log.error("service.not_drained", grace_seconds=grace)
            return NOT_DRAINED
        halted = self._supervisor.halted
        if halted and not self.stop.is_set:
            helps = self._supervisor.fenced
            self.log.error("service.failed", halted=halted, restart_helps=helps, exit_code=FAILED)
            return FAILED
        if unsaved := self._supervisor.unsaved:
            lost = "what was handled since the last save will come again"
            at = {"scopes": unsaved, "consequence": lost, "exit_code": NOT_DRAINED}
            self.log.error("service.not_saved", **at)
            return NOT_DRAINED
        self.log.info("service.stopped", halted=halted)
        return FINISHED

    async def handle_signals(self) -> None:
        """The first signal drains within the grace period, a second one forces the end."""
        seen = hang_ups = 0
        with self.done.interrupts():
            while True:
                for number in self._signals.received[seen:]:
                    seen += 1
                    self._apply_signal(number)
                if self._signals.hang_ups > hang_ups:
                    hang_ups = self._signals.hang_ups
                    self._sighup.request()
                await self._signals.wait()

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
        self.bound_stop()

    def bound_stop(self) -> None:
        """Ends the process after a stop even if something hangs, such as a handler that swallows
        its cancellation, or the event loop."""
        longest = self.settings.shutdown.grace_seconds + CLOSING_SECONDS
        self._signals.last_resort = LastResort(longest, CLOSING_SECONDS / 5, self.leave)

    def _apply_signal(self, number: signal.Signals) -> None:
        grace = self.settings.shutdown.grace_seconds
        if not self.stop.is_set:
            self.log.info("service.stopping", signal=number.name, grace_seconds=grace)
            self.stop.set()
            self._running.deadline = anyio.current_time() + grace
        elif self._signals.forces(number):
            self.log.warning("service.forced", signal=number.name)
            self._running.cancel()

    def leave(self) -> None:
        """Ends the process at once. Called from another thread if the process hangs."""
        self.log.error("service.not_drained", reason="something hangs: the process exits")
        self._output.leave(NOT_DRAINED)

    def _not_ready(self) -> list[str]:
        return ["stopping"] if self.stop.is_set else self._supervisor.not_ready()

    def _degraded(self) -> list[str]:
        return self._supervisor.degraded() + (self._leases.degraded() if self._leases else [])

    def _status(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "now": datetime.now(UTC).isoformat(),
            "started_at": self._started_at.isoformat(),
            "driver": self.settings.mongodb.driver,
            "cluster": str(self._cluster) if self._cluster else None,
            "server": self._server.document() if self._server else None,
            "ready": not self._not_ready(),
            "degraded": self._degraded(),
            "stopping": self.stop.is_set,
            "members": self._leases.members() if self._leases else None,
            "scopes": self._rounds.added_to(self._supervisor.status()) if self._rounds else {},
        }
