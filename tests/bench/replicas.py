"""What replicas cost, and how soon they take over: ``python -m tests.bench.replicas``.

Renewals are those of one process with a hundred scopes on mongod. Takeovers: see
:mod:`tests.bench.takeovers`.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import structlog

from tailrace.drivers.motor import motor_driver
from tailrace.engine import HeldLease, Supervisor, Watcher, WatcherState
from tailrace.model import Scope
from tailrace.model.lease import Member
from tailrace.observe.metrics import Metrics
from tailrace.replicas.leases import Leases
from tailrace.replicas.times import LeaseTimes
from tailrace.stores.mongodb import open_store
from tailrace.stream import CommandRunner, Interrupt
from tests.bench import contenders, real_server, report, takeovers
from tests.mongod import ReplicaSet
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Watching

SCOPES = 100
MOST_RATIO, MOST_COMMANDS, MOST_CORE = 1.02, 40, 0.01
"""The targets: CPU of an event with leases, and the cost of renewals."""
ALONE = replace(contenders.EVENT, name="alone")
SHARING = replace(contenders.EVENT, name="sharing", sections={"replicas": {"lease_seconds": 10}})


class Counting:
    """Counts the commands that pass through it."""

    def __init__(self, runner: CommandRunner) -> None:
        self._runner = runner
        self.commands = 0

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        self.commands += 1
        return await self._runner.run(database, command)


async def renewals(server: ReplicaSet, seconds: float) -> tuple[float, float]:
    """Commands a second, and the share of a core, of a process that renews its leases."""
    async with motor_driver(server.uri, 1) as driver:
        runner = Counting(driver)
        async with open_store(runner, database="renewals") as store:
            names = [f"scope-{number}" for number in range(SCOPES)]
            supervisor, stop = Supervisor(300), Interrupt()
            leases = Leases(
                names,
                Member("one/1", "one"),
                store.leases,
                store.checkpoints,
                Metrics(state.value for state in WatcherState),
                LeaseTimes(),
                1,
                supervisor.restart,
            )
            for name in names:
                watching = Watching(ScriptedDriver(), scope=Scope(name, "shop", name))
                supervisor.watchers.append(Idle(watching.watcher.plan, watching.runtime))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(leases.run, stop)
                tasks.start_soon(supervisor.run, stop, leases.follow)
                while not all(_holds(leases, name) for name in names):  # noqa: ASYNC110
                    await anyio.sleep(0.1)
                commands, cpu, began = runner.commands, time.process_time(), time.monotonic()
                await anyio.sleep(seconds)
                passed = time.monotonic() - began
                found = (runner.commands - commands, time.process_time() - cpu)
                tasks.cancel_scope.cancel()
    return found[0] / passed, found[1] / passed


class Idle(Watcher):
    """Holds the lease until the stop, and reads nothing."""

    async def run(self, stop: Interrupt, lease: HeldLease | None = None) -> None:
        await stop.wait()


def _holds(leases: Leases, name: str) -> bool:
    found = leases.observed(name)
    return found is not None and found.held


def hot_path(runs: int, events: int) -> tuple[float, float, float]:
    """The client's CPU microseconds an event without leases and with them, and the ratio."""
    ((_, rows),) = real_server.measure((ALONE, SHARING), runs, events, real_server.WORKLOADS[:1])
    seconds = [[run["client_cpu_seconds"] for run in row["runs"]] for row in rows]
    ratio = median(mine / base for base, mine in zip(*seconds, strict=True))
    return rows[0]["client_us"], rows[1]["client_us"], ratio


def main() -> int:
    """Measures and prints everything; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replicas")
    parser.add_argument("--quick", action="store_true", help="one short run of each")
    options = parser.parse_args()
    runs, seconds, rounds = (1, 5, 2) if options.quick else (15, 30, takeovers.ROUNDS)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(report.machine())
    alone, sharing, ratio = hot_path(runs, real_server.EVENTS)
    print(f"An event: {alone:.2f} µs without leases, {sharing:.2f} µs with them ({ratio:.3f})")
    found = {"times the CPU without leases": (ratio, MOST_RATIO)}
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        server = ReplicaSet(Path(directory) / "mongod")
        try:
            commands, core = anyio.run(renewals, server, seconds)
            print(f"{SCOPES} leases: {commands:.1f} commands/s, {core:.2%} of a core", flush=True)
            found["commands/s"], found["of a core"] = (commands, MOST_COMMANDS), (core, MOST_CORE)
            late = takeovers.run(server, Path(directory), takeovers.SERIES, rounds)
        finally:
            server.stop()
    missed = {what: each for what, each in found.items() if each[0] > each[1]}
    for what, (measured, most) in missed.items():
        print(f"{measured:.3f} {what}, not {most}")
    for line in late:
        print(f"missed: {line}")
    return bool(missed or late)


if __name__ == "__main__":
    raise SystemExit(main())
