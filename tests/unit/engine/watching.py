"""A watcher on a scripted driver, with handlers that a test controls."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, Self

import anyio
import pytest
from bson.timestamp import Timestamp
from structlog.testing import capture_logs

from tailrace.engine import (
    ByteBudget,
    Routed,
    Runtime,
    ScopePlan,
    Supervisor,
    Watcher,
    WatcherState,
    readiness,
)
from tailrace.engine.held_lease import ObservedLease
from tailrace.engine.plan.scope_plan import unknown
from tailrace.engine.ports import DeadLetterStore, DesiredStateStore
from tailrace.errors import DestinationUnavailable
from tailrace.event import ChangeEvent
from tailrace.model import Checkpoint, Position, Scope, StartPoint
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.failure_policy import Backoff
from tailrace.observe.metrics import Metrics
from tailrace.stores.memory import MemoryDeadLetters, MemoryDesiredStates
from tailrace.stream import ChangeStreamOptions, Interrupt
from tests.guards import against_hanging
from tests.handlers import handler
from tests.unit.engine.changes import number, time, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore

SCOPE = Scope("orders", "shop", "orders")
CLUSTER = ClusterIdentity("rs0", "5f3a")
FIRST = StartPoint(at_operation_time=time(1))
"""The first event."""
AT_ONCE = Backoff(0, 0)
NEVER = Backoff(3600, 3600)


class Destination:
    """A handler that records its events, and fails or waits at events that a test chooses.

    ``failures[n]`` calls with event ``n`` fail; events in ``held`` wait until they are removed from
    it. ``calls`` are the lengths of its sequences.
    """

    def __init__(self, name: str = "audit") -> None:
        self.name = name
        self.begun: list[int] = []
        self.handled: list[int] = []
        self.calls: list[int] = []
        self.failures: Counter[int] = Counter()
        self.held: set[int] = set()

    async def on_event(self, event: ChangeEvent) -> None:
        n = number(event)
        self.begun.append(n)
        while n in self.held:
            await anyio.lowlevel.checkpoint()
        if self.failures[n]:
            self.failures[n] -= 1
            raise DestinationUnavailable(f"event {n}")
        self.handled.append(n)

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        self.calls.append(len(events))
        for event in events:
            await self.on_event(event)

    def routed(self, wants: Callable[[ChangeEvent], bool] | None = None, **fields: Any) -> Routed:
        return Routed(handler(self.name, self.on_event, **fields), wants)

    def routed_by_batch(self, batch_size: int = 1000, **fields: Any) -> Routed:
        return Routed(handler(self.name, on_events=self.on_events, batch_size=batch_size, **fields))


class Watching:
    """One watcher and its parts. Another one with the same driver and store is the next process."""

    def __init__(
        self,
        driver: ScriptedDriver,
        *handlers: Routed,
        store: ScriptedStore | None = None,
        budget: int = 1 << 20,
        cluster: ClusterIdentity = CLUSTER,
        options: ChangeStreamOptions | None = None,
        scope: Scope = SCOPE,
        runtime: Runtime | None = None,
        letters: DeadLetterStore | None = None,
        lease: Callable[[str], ObservedLease | None] = lambda scope: None,
        states: DesiredStateStore | None = None,
        now: Callable[[], Awaitable[Timestamp | None]] = unknown,
        **following: Any,
    ) -> None:
        self.driver = driver
        self.store = store or ScriptedStore()
        self.budget = runtime.budget if runtime else ByteBudget(budget)
        self.metrics = (
            runtime.metrics if runtime else Metrics(state.value for state in WatcherState)
        )
        self.runtime = Runtime(
            driver,
            self.store,
            letters or MemoryDeadLetters(),
            states or MemoryDesiredStates(),
            cluster,
            self.budget,
            self.metrics,
            lease=lease,
            now=now,
        )
        default: dict[str, Any] = {"start": FIRST, "backoff": AT_ONCE, "checkpoint_seconds": 3600}
        self.watcher = Watcher(
            ScopePlan(scope, options or ChangeStreamOptions(), handlers, **default | following),
            self.runtime,
        )
        self.stop = Interrupt()
        self.running: anyio.CancelScope
        self.logs: Sequence[Any] = ()

    @asynccontextmanager
    async def run(self, *, stop: bool = True) -> AsyncIterator[Self]:
        """Runs it beside the block, then stops it (or waits until it ends by itself)."""
        self.running = anyio.CancelScope()
        with capture_logs() as self.logs, against_hanging():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run)
                try:
                    yield self
                except BaseException:
                    tasks.cancel_scope.cancel()
                    raise
                if stop:
                    self.stop.set()

    async def _run(self) -> None:
        with self.running:
            await self.watcher.run(self.stop)

    async def to_the_end(self) -> None:
        """Runs it until it ends by itself."""
        async with self.run(stop=False):
            pass

    async def until_handled(self, time: Timestamp) -> None:
        def handled() -> bool:
            watermark = self.watcher.status.watermark
            return watermark is not None and watermark.handled_time == time

        await until(handled)

    async def until_state(self, state: WatcherState) -> None:
        await until(lambda: self.watcher.status.state is state)

    @property
    def states(self) -> list[str]:
        """Every state that it entered, in order."""
        return [log["state"] for log in self.logs if log["event"] == "watcher.entered"]

    @property
    def saved(self) -> Checkpoint | None:
        found = self.store.records.get(self.watcher.name)
        return None if found is None or found.is_reset else found

    @property
    def position(self) -> Position:
        """The position that is saved."""
        return self.store.records[self.watcher.name].position

    @property
    def last_error(self) -> str:
        last = self.watcher.status.errors.last
        return last.message if last is not None else ""

    @property
    def reason(self) -> str:
        return self.watcher.status.reason

    def counted(self, name: str, **labels: str) -> float:
        """The value of a counter of this scope; 0 if it was never incremented."""
        value = self.metrics.registry.get_sample_value(
            f"tailrace_{name}", {"scope": self.watcher.name} | labels
        )
        return value or 0


NOW = 10_000.0
"""Seconds of the monotonic clock in :func:`stopped_clock`."""


@contextmanager
def stopped_clock() -> Iterator[None]:
    """Probes look at a clock that stands still."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readiness, "time", SimpleNamespace(monotonic=lambda: NOW))
        yield


def supervisor_of(*watching: Watching) -> Supervisor:
    supervisor = Supervisor(300)
    supervisor.watchers = [each.watcher for each in watching]
    return supervisor


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[Sequence[Any]]:
    """Runs the supervisor beside the block, then stops it; yields its log lines."""
    interrupt = Interrupt()
    with capture_logs() as logs, against_hanging():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run, interrupt)
            yield logs
            interrupt.set()
