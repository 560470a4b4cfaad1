"""The composition root: configuration in, a running service out; signals; the exit code.

The nesting of ``async with``, read inside out, is the shutdown order: watchers drain and save,
cursors are killed and the client closes, handlers and the store close, and the HTTP server is last.
"""

import secrets
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from typing import Any

import anyio
import structlog

from tailrace import __version__
from tailrace.assembly import inquiries, local_store, scope_plans, server_store
from tailrace.config import Settings
from tailrace.control import ActionRefused, Api, Control, Health
from tailrace.drivers import DRIVERS, identify
from tailrace.engine import (
    ByteBudget,
    ClusterWatch,
    Runtime,
    Supervisor,
    Watcher,
    WatcherState,
    blocking_handler,
    watch_letters,
    watch_orders,
)
from tailrace.errors import ConfigurationError
from tailrace.handlers import check_handlers
from tailrace.handlers.pool import handler_pool
from tailrace.memory import settle_malloc, settled_memory
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.lease import Member
from tailrace.observe import logs
from tailrace.observe.access import Access
from tailrace.observe.history import History
from tailrace.observe.http import HttpServer, bind
from tailrace.observe.loop_watch import LoopWatch
from tailrace.observe.metrics import Metrics
from tailrace.observe.output import Output
from tailrace.reload import SPARE_SCOPES, Reloader, handler_plans
from tailrace.replicas.leases import Leases
from tailrace.replicas.member_name import require_own_name
from tailrace.replicas.times import LeaseTimes
from tailrace.signals import LastResort, StopSignals
from tailrace.stores import Store
from tailrace.stream import Interrupt, ServerClock
from tailrace.why.inquiry import Inquiry

FINISHED, FAILED, USAGE, NOT_DRAINED = 0, 1, 2, 3
"""The documented exit codes."""

# How long the last saves, killCursors and closing may take together, after the grace period.
CLOSING_SECONDS = 10.0


async def serve(settings: Settings, signals: StopSignals, output: Output, file: str) -> int:
    """Runs the daemon until a signal, or until no scope is running; returns the exit code.

    ``settings`` are those of the configuration ``file``, which a reload reads again.
    """
    if problems := check_handlers(settings.handlers, settings.scopes, settings.routes):
        raise ConfigurationError(*problems)
    settle_malloc()
    service = _Service(settings, signals, output, file)
    watch = LoopWatch(service.metrics.loop_lag.observe, blocking_handler)
    listener = bind(settings.http.host, settings.http.port)
    with closing(listener) as server_socket, watch.watching():
        token = settings.http.token
        access = Access(
            loopback=ip_address(server_socket.getsockname()[0]).is_loopback,
            token=token.get_secret_value() if token else "",
            protect_reads=settings.http.protect == "everything",
        )
        api = Api(service.control, service.health, service.metrics.registry, access)
        server = HttpServer(server_socket, api)
        outcome = FAILED
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            signals.listen()  # again: a handler's module may have installed its own signal handlers
            service.bound_stop()
            service.http_port = server.port
            tasks.start_soon(server.run, name="http")
            tasks.start_soon(service.obey_signals, name="signals")
            tasks.start_soon(service.obey_hang_ups, name="reloads by signal")
            service.log.info("service.starting", http_port=server.port, version=__version__)
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

    def __init__(self, settings: Settings, signals: StopSignals, output: Output, file: str) -> None:
        self.settings = settings
        self._file = file
        self._signals = signals
        self._output = output
        self.metrics = Metrics(state.value for state in WatcherState)
        self.metrics.log_lines_dropped = lambda: output.dropped
        self._supervisor = Supervisor(settings.http.liveness_seconds)
        scopes = self._supervisor
        self.history = History(scopes.readings)
        self.health = Health(
            scopes.not_alive, self._not_ready, self._degraded, self._status, self.history.document
        )
        self.control = Control(scopes)
        self._started_at = datetime.now(UTC)
        self.log = structlog.get_logger()
        self.stop = Interrupt()
        self.done = Interrupt()
        self._started = anyio.Event()
        self._inquiries: Callable[[Settings], Mapping[str, Inquiry]] = lambda settings: {}
        self._hung_up = anyio.Event()
        self._running = anyio.CancelScope()
        self._cluster: ClusterIdentity | None = None
        self._server: ClusterWatch | None = None
        self._leases: Leases | None = None
        self.http_port = 0

    async def run(self) -> int:
        """Connects, follows all scopes until the stop, drains; returns the exit code."""
        settings = self.settings
        uri = settings.mongodb.uri.get_secret_value()
        factory = DRIVERS[settings.mongodb.driver]
        streams = len(settings.scopes)
        async with AsyncExitStack() as stack:
            # Local parts are opened first: a corrupt file can be reported without a server.
            store = await stack.enter_async_context(local_store(settings))
            pool = await stack.enter_async_context(
                handler_pool(settings.delivery, self.metrics.registry)
            )
            pool.use(await pool.add(handler_plans(settings).values(), waits=True))
            with self.stop.interrupts() as connecting:
                wait = settings.mongodb.connect_timeout_seconds
                self._cluster = cluster = await identify(factory, uri, wait)
            if connecting.cancelled_caught:
                self.log.info("service.stopped", halted=[])
                return FINISHED
            if cluster.doubt:
                self.log.warning("cluster.unidentified", cluster=str(cluster), reason=cluster.doubt)
            most_scopes = streams + SPARE_SCOPES
            driver = await stack.enter_async_context(factory(uri, most_scopes))
            if store is None:
                store = await stack.enter_async_context(server_store(settings, driver))
            me = self._member()
            with self.stop.interrupts() as joining:
                if me is not None and settings.replicas is not None:
                    times = LeaseTimes(settings.replicas.lease_seconds)
                    await require_own_name(store.leases, me, times)
            if joining.cancelled_caught:
                self.log.info("service.stopped", halted=[])
                return FINISHED
            self._leases = leases = self._shared(store, me)
            clock = ServerClock()
            self._server = watch = ClusterWatch(driver, clock)
            self.metrics.server = watch.gauges
            runtime = Runtime(
                driver,
                store.checkpoints,
                store.dead_letters,
                cluster,
                ByteBudget(settings.delivery.max_in_flight_bytes, streams),
                self.metrics,
                clock,
                orders=store.orders,
                lease=leases.observed if leases is not None else lambda scope: None,
            )
            handlers = {name: each.handler for name, each in pool.open.items()}
            watchers = [Watcher(plan, runtime) for plan in scope_plans(settings, handlers, driver)]
            self._supervisor.watchers = watchers
            self.control.runtime, self.control.server = runtime, driver
            self._inquiries = partial(inquiries, store=store, server=driver)
            self.control.inquiries = self._inquiries(settings)
            self.control.reloads = Reloader(
                self._file,
                settings,
                pool,
                self._supervisor,
                runtime,
                driver,
                leases,
                most_scopes,
                self._apply,
            ).reload
            self._started.set()
            self.log.info("service.started", cluster=str(cluster), scopes=len(watchers))
            with self._running, settled_memory():
                try:
                    async with anyio.create_task_group() as beside:
                        self.control.tasks = beside
                        beside.start_soon(watch.run, name="cluster watch")
                        beside.start_soon(self.history.run, name="history")
                        letters = store.dead_letters, self.metrics
                        beside.start_soon(watch_letters, *letters, name="letters watch")
                        orders = store.orders, self._supervisor.obey
                        beside.start_soon(watch_orders, *orders, name="orders watch")
                        if leases is not None:
                            beside.start_soon(leases.run, self.stop, name="leases")
                        follow = Watcher.run if leases is None else leases.follow
                        await self._supervisor.run(self.stop, follow)
                        beside.cancel_scope.cancel()  # does not wait for pending answers
                finally:
                    if leases is not None:
                        await leases.close()
        return self._outcome()

    def _member(self) -> Member | None:
        """This process among those that share the scopes; ``None`` without replicas."""
        settings = self.settings.replicas
        if settings is None:
            return None
        host = socket.gethostname()
        name = settings.name or f"{host}:{self.http_port}"
        return Member.named(name, host, secrets.token_hex(4), settings.max_scopes or 0)

    def _shared(self, store: Store, me: Member | None) -> Leases | None:
        """The leases of this process; ``None`` without replicas."""
        settings = self.settings.replicas
        if settings is None or me is None:
            return None
        return Leases(
            [scope.name for scope in self.settings.scopes],
            me,
            store.leases,
            store.checkpoints,
            self.metrics,
            LeaseTimes(settings.lease_seconds),
            self.settings.shutdown.grace_seconds,
            self._supervisor.restart,
        )

    def _outcome(self) -> int:
        if self._running.cancelled_caught:
            self.log.error(
                "service.not_drained", grace_seconds=self.settings.shutdown.grace_seconds
            )
            return NOT_DRAINED
        halted = self._supervisor.halted
        if halted and not self.stop.is_set:
            helps = self._supervisor.fenced
            self.log.error("service.failed", halted=halted, restart_helps=helps, exit_code=FAILED)
            return FAILED
        if unsaved := self._supervisor.unsaved:
            self.log.error(
                "service.not_saved",
                scopes=unsaved,
                consequence="what was handled since the last save will come again",
                exit_code=NOT_DRAINED,
            )
            return NOT_DRAINED
        self.log.info("service.stopped", halted=halted)
        return FINISHED

    async def obey_signals(self) -> None:
        """The first signal drains within the grace period, a second one forces the end."""
        seen = hang_ups = 0
        with self.done.interrupts():
            while True:
                for number in self._signals.received[seen:]:
                    seen += 1
                    self._obey(number)
                if self._signals.hang_ups > hang_ups:
                    hang_ups = self._signals.hang_ups
                    self._hung_up.set()
                await self._signals.wait()

    async def obey_hang_ups(self) -> None:
        """Reloads once for all requests that came before it."""
        with self.done.interrupts():
            await self._started.wait()
            while True:
                await self._hung_up.wait()
                self._hung_up = anyio.Event()
                log = self.log.bind(action="reload", by=signal.SIGHUP.name)
                try:
                    done = await self.control.reload(dry_run=False)
                    log.info("action.done", **{"from": done.before, "to": done.after})
                except ActionRefused as refused:
                    log.error("action.refused", reason=str(refused))
                except Exception as error:
                    log.critical("action.failed", exc_info=error)

    def _apply(self, settings: Settings) -> None:
        """Takes over from a reload what belongs to no scope."""
        self.settings = settings
        self.control.inquiries = self._inquiries(settings)
        logs.configure(settings.logging.level, settings.logging.format)
        self.bound_stop()

    def bound_stop(self) -> None:
        """Ends the process after a stop even if something hangs, such as a handler that swallows
        its cancellation, or the event loop."""
        longest = self.settings.shutdown.grace_seconds + CLOSING_SECONDS
        self._signals.last_resort = LastResort(longest, CLOSING_SECONDS / 5, self.leave)

    def _obey(self, number: signal.Signals) -> None:
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
        leases = self._leases.degraded() if self._leases else []
        return self._supervisor.degraded() + leases

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
            "scopes": self._supervisor.status(),
        }
