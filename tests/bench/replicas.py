"""What replicas cost and how quickly they take over: ``python -m tests.bench.replicas``.

Takeovers are counted from the signal to the first change that the next owner hands over, at the
default lease of ten seconds. Renewals are those of one process with a hundred scopes on mongod.
"""

import argparse
import logging
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import structlog

from tailrace.drivers.motor import motor_driver
from tailrace.engine import Handler, HeldLease, Owner, Supervisor, Watcher
from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.retry import Breaker, Retry
from tailrace.engine.ports import CommandRunner
from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.model.lease import Member
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.observe.recent_errors import RecentErrors
from tailrace.replicas.leases import Leases
from tailrace.replicas.times import LeaseTimes
from tailrace.replicas.turns import Turns
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.stores.mongodb import open_store
from tailrace.stream import Interrupt
from tests.bench import report
from tests.daemon import Daemon, until
from tests.load import real_load
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.replicas import Replicas
from tests.unit.engine.changes import change
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Watching

SCOPES = 100
_EVENTS = 20_000


def takeovers(server: ReplicaSet, directory: Path, how: signal.Signals, rounds: int) -> list[float]:
    """Seconds until the next owner hands a change over."""
    made: list[Daemon] = []

    def make(uri: str, name: str, **sections: Any) -> Daemon:
        made.append(Daemon(directory / name, uri, **sections))
        return made[-1]

    database = f"takeover_{how.name.lower()}"
    replicas = Replicas(Orders(server, database, make), lease=10)
    seconds = []
    try:
        replicas.start("one", "other")
        with real_load(server, database, 0.02):
            for _ in range(rounds):
                owner = replicas.until_owner()
                epoch = owner.status()["lease"]["epoch"]
                began = time.monotonic()
                owner.signal(how)
                until(_later(replicas, epoch), "the next owner", 120)
                seconds.append(time.monotonic() - began)
                owner.wait()
                owner.start()
    finally:
        for each in made:
            each.kill()
    return seconds


def _later(replicas: Replicas, epoch: int) -> Callable[[], bool]:
    return lambda: any(each.epoch > epoch for each in replicas.noted[-1:])


class Counting:
    """Counts the commands that go through it."""

    def __init__(self, runner: CommandRunner) -> None:
        self._runner = runner
        self.commands = 0

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        self.commands += 1
        return await self._runner.run(database, command)


async def renewals(server: ReplicaSet, seconds: float) -> tuple[float, float]:
    """Commands a second, and the share of a core, of a process that keeps its leases."""
    async with motor_driver(server.uri, 1) as driver:
        runner = Counting(driver)
        async with open_store(runner, database="renewals") as store:
            supervisor = Supervisor(300)
            for number in range(SCOPES):
                scope = Scope(f"scope-{number}", "shop", f"scope-{number}")
                watching = Watching(ScriptedDriver(), scope=scope, backoff=Backoff(1, 1))
                supervisor.watchers.append(watching.watcher)
            turns = Turns(store.leases, Member("one/1", "one"), supervisor, 1)
            leases = Leases(turns, store.checkpoints, watching.metrics, LeaseTimes())
            supervisor.follow = _keeping(turns)
            stop = Interrupt()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(leases.run, stop)
                tasks.start_soon(supervisor.run, stop)
                while len(turns.held) < SCOPES:  # noqa: ASYNC110 - no event tells it
                    await anyio.sleep(0.1)
                commands, cpu, began = runner.commands, time.process_time(), time.monotonic()
                await anyio.sleep(seconds)
                passed = time.monotonic() - began
                found = (runner.commands - commands, time.process_time() - cpu)
                tasks.cancel_scope.cancel()
    return found[0] / passed, found[1] / passed


def _keeping(turns: Turns) -> Callable[[Watcher, Interrupt], Any]:
    """Instead of reading: has the lease until the stop."""

    async def follow(watcher: Watcher, stop: Interrupt) -> None:
        turns.waiting[watcher.name] = watcher, anyio.Event()
        await turns.waiting[watcher.name][1].wait()
        del turns.waiting[watcher.name]
        await stop.wait()

    return follow


async def hot_path(runs: int) -> tuple[float, float]:
    """Microseconds of a call that does nothing, without a lease and with one, by turns."""
    event = ChangeEvent.from_document(change(1))
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        for at, lease in enumerate((None, HeldLease("orders", 1, float("inf")))):
            deliver = _delivery(lease).deliver
            began = time.thread_time()
            for _ in range(_EVENTS):
                await deliver(event)
            found[at].append((time.thread_time() - began) / _EVENTS * 1e6)
    return min(found[0]), min(found[1])


def _delivery(lease: HeldLease | None) -> Delivery:
    async def handle(event: ChangeEvent) -> None:
        pass

    breaker = Breaker(FailurePolicy(), HandlerRecorder())
    retry = Retry("orders", "none", MemoryDeadLetters(), breaker, RecentErrors(), Interrupt())
    return Delivery(Handler("none", handle), retry, Owner("orders", "", "", 1), lease)


def _told(name: str, seconds: Sequence[float]) -> str:
    worst = max(seconds)
    return f"{name}: median {median(seconds):.2f} s, worst of {len(seconds)} {worst:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replicas")
    parser.add_argument("--rounds", type=int, default=50, help="takeovers of each kind")
    parser.add_argument("--seconds", type=float, default=30, help="of renewals")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(report.machine())
    without, with_lease = anyio.run(hot_path, 50)
    print(f"A call of a handler: {without:.3f} µs without a lease, {with_lease:.3f} µs with one")
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        server = ReplicaSet(Path(directory) / "mongod")
        try:
            commands, core = anyio.run(renewals, server, options.seconds)
            print(f"{SCOPES} leases: {commands:.1f} commands/s, {core:.2%} of a core")
            for how in (signal.SIGTERM, signal.SIGKILL):
                seconds = takeovers(server, Path(directory) / how.name, how, options.rounds)
                print(_told(f"Takeover after {how.name}", seconds))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
