"""Two reloads, the second one while scopes still end for the first one."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace as Named
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from tailrace.destination.keeper import keeper
from tailrace.engine import Supervisor, WatcherState
from tailrace.handlers.pool import HandlerPool, handlers_of
from tailrace.model.lease import Member
from tailrace.observe.metrics import Metrics
from tailrace.reload import DesiredConfig, Reloader
from tailrace.replicas.leases import Leases
from tailrace.replicas.times import LeaseTimes
from tailrace.stores.memory import MemoryCheckpoints
from tailrace.stores.memory_leases import MemoryLeases
from tailrace.stream import Interrupt
from tailrace.tracing import plans, watcher
from tests.guards import against_hanging
from tests.unit.engine.changes import changes, time, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Watching

LEASE = LeaseTimes(3600)
_OPEN = {WatcherState.CATCHING_UP, WatcherState.CAUGHT_UP, WatcherState.STREAMING}


class Server(ScriptedDriver):
    """It also tells its time, and has no collections."""

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        cursor = {"firstBatch": [], "id": 0, "ns": f"{database}.$cmd.listCollections"}
        return {"ok": 1, "operationTime": time(self.now), "cursor": cursor}


class Client:
    """The client of the source, which no reload replaces."""

    driver: Any


class Process:
    """One that shares its scopes; their streams are scripted."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.file = directory, directory / "config.yaml"
        self.supervisor, self.driver = Supervisor(300), Server(*changes(1, 3))
        self.driver.await_seconds = 0.01
        self.runtime = Watching(self.driver).runtime
        self.reloader: Reloader

    def configure(self, *scopes: str) -> None:
        """Writes the file; JSON is YAML."""
        path = str(self.directory / "audit.jsonl")
        configuration = {
            "mongodb": {"uri": "mongodb://127.0.0.1/?replicaSet=rs0"},
            "store": {"type": "memory"},
            "scopes": [{"name": name, "database": name} for name in scopes],
            "handlers": {"audit": {"type": "jsonl", "path": path}},
            "routes": [{"scope": name, "handlers": ["audit"]} for name in scopes],
        }
        self.file.write_text(json.dumps(configuration))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        desired, supervisor, stop = DesiredConfig.read(str(self.file)), self.supervisor, Interrupt()
        settings = desired.settings
        leases = Leases(
            [each.name for each in settings.scopes],
            Member.named("one", "host", "aa", 2),
            MemoryLeases(anyio.current_time),
            MemoryCheckpoints({}),
            Metrics(state.value for state in WatcherState),
            LEASE,
            1.0,
            supervisor.restart,
            anyio.current_time,
        )
        async with keeper() as opened:
            pool = HandlerPool(opened, leased=False, tables=None)
            pool.use(await pool.add(desired.handlers.values(), settings.delivery))
            clients: Any = Named(now=Client(), streams=99, use=_nothing, sweep=_nothing)
            clients.now.driver = self.driver
            self.reloader = Reloader(
                str(self.file),
                desired,
                pool,
                clients,
                supervisor,
                self.runtime,
                leases,
                lambda *_: None,
            )
            planned = plans(settings, handlers_of(pool.open, settings.delivery), self.driver, None)
            supervisor.watchers = [watcher(plan, self.runtime, None) for plan in planned]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(leases.run, stop)
                tasks.start_soon(supervisor.run, stop, leases.follow)
                yield
                stop.set()
                await until(lambda: all(not each.goes_on for each in supervisor.watchers))
                tasks.cancel_scope.cancel()

    def follows(self, scope: str) -> bool:
        """Whether its stream is open."""
        found = self.supervisor.find(scope)
        return found is not None and found.status.state in _OPEN


def _nothing(*_: object) -> None: ...


async def test_a_scope_that_comes_back_while_its_removal_is_under_way_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay of dead letters outlasts the answer to the reload that has removed it."""
    monkeypatch.setattr("tailrace.reload.reloader._MOST_PATIENCE_SECONDS", 0)
    process = Process(tmp_path)
    process.configure("orders", "users")
    with against_hanging(), capture_logs():
        async with process.running():
            await until(lambda: process.follows("orders") and process.follows("users"))
            former = process.supervisor.find("orders")
            assert former is not None
            async with former.scope.side_calls.call():
                process.configure("users")
                await process.reloader.reload(dry_run=False)
                await until(lambda: former.status.state is WatcherState.STOPPED)
                process.configure("orders", "users")
                await process.reloader.reload(dry_run=False)
            await until(lambda: process.follows("orders"))
            assert process.supervisor.find("orders") is not former
            assert process.follows("users")
