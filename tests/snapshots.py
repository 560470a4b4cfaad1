"""A watcher with a snapshot on mongod, concurrent writers, and a handler that records events."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
import bson
from bson.timestamp import Timestamp

from tailrace.drivers import DRIVERS, CommandDriver
from tailrace.engine import ByteBudget, Handler, Routed, Runtime, ScopePlan, Watcher, WatcherState
from tailrace.event import ChangeEvent
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.desired_state import DesiredState
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.model.snapshot import SnapshotRequest, SnapshotState
from tailrace.observe.metrics import Metrics
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.snapshots import Snapshots
from tailrace.stores.memory import MemoryDeadLetters, MemoryDesiredStates
from tailrace.stream import ChangeStreamOptions, Interrupt
from tests.daemon import BEHIND_SECONDS
from tests.handlers import handler
from tests.mongod import Client, ReplicaSet
from tests.unit.engine.stores import ScriptedStore

_NUMBERS = itertools.count(1)


def ordered(of: Snapshots, wanted: SnapshotRequest | str) -> str:
    """Gives an order as a process does that has stored it; returns why it is refused, or nothing.

    ordered(scope, scope.pause(paused=True))
    """
    if isinstance(wanted, str):
        return wanted
    of.apply(next(_NUMBERS), wanted)
    return ""


State = dict[bytes, bytes]
"""The documents of collections, as BSON, by ``ChangeEvent.key``."""


@dataclass
class Recorder:
    """A handler that keeps the events it receives, in order. It may fail or be slow."""

    events: list[ChangeEvent] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    calls: list[int] = field(default_factory=list)
    """The number of events of each call."""
    delay: float = 0.0
    fails: Callable[[Sequence[ChangeEvent]], Exception | None] = lambda _: None

    async def on_event(self, event: ChangeEvent) -> None:
        await self.on_events([event])

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        if self.delay:
            await anyio.sleep(self.delay)
        if error := self.fails(events):
            raise error
        self.events += events
        self.operations.update(event.operation_type for event in events)
        self.calls.append(len(events))

    @property
    def rows(self) -> list[ChangeEvent]:
        return [event for event in self.events if event.operation_type == "read"]

    def count(self, operation: str) -> int:
        return self.operations[operation]


@dataclass
class Copy:
    """One scope with a snapshot on a server. Each :meth:`run` acts as another process."""

    uri: str
    scope: Scope
    recorder: Recorder = field(default_factory=Recorder)
    options: SnapshotOptions = field(default_factory=lambda: SnapshotOptions(initial=True))
    driver_name: str = "pymongo"
    by_batch: bool = True
    grouped: bool = False
    """Whether the handler takes whole transactions."""
    lanes: int = 16
    checkpoint_seconds: float = 0.05
    store: ScriptedStore = field(default_factory=ScriptedStore)
    letters: Any = field(default_factory=MemoryDeadLetters)
    beside: Sequence[Handler] = ()
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    """The failure policy of the recorder."""
    stream: dict[str, Any] = field(default_factory=lambda: {"max_await_time_ms": 200})
    snapshots: Snapshots = field(init=False)
    watcher: Watcher = field(init=False)
    _lag: float = 0.0

    @asynccontextmanager
    async def run(self, *, kill: bool = False) -> AsyncIterator[Watcher]:
        """Runs the watcher beside the block, then stops it cleanly or without a save (``kill``)."""
        self.store.failing = 0
        async with (
            DRIVERS[self.driver_name](self.uri, 1) as driver,
            anyio.create_task_group() as tasks,
        ):
            self.watcher = self._watcher(driver)
            stop = Interrupt()
            tasks.start_soon(self.watcher.run, stop)
            try:
                yield self.watcher
            finally:
                if kill:
                    self.store.failing = 1_000_000
                    tasks.cancel_scope.cancel()
                stop.set()

    def ordered(self, wanted: SnapshotRequest | str) -> str:
        """Gives the watcher an order; returns why it is refused, or nothing.

        copy.ordered(copy.snapshots.pause(paused=True))
        """
        if isinstance(wanted, str):
            return wanted
        number, at = next(_NUMBERS), datetime.now(UTC)
        order = DesiredState(
            self.scope.name, number, False, "ann", at, snapshot=wanted, snapshot_generation=number
        )
        self.watcher.apply(order)
        return ""

    def _watcher(self, driver: CommandDriver) -> Watcher:
        failure = self.failure
        if self.by_batch:
            audit = handler(
                "audit",
                on_events=self.recorder.on_events,
                batch_size=500,
                whole_transactions=self.grouped,
                failure=failure,
            )
        else:
            audit = handler("audit", self.recorder.on_event, failure=failure)
        alone = partial(Snapshots, self.scope, driver, self.options)
        self.snapshots = alone()
        plan = ScopePlan(
            self.scope,
            ChangeStreamOptions(**self.stream),
            [Routed(each, rows=alone) for each in (audit, *self.beside)],
            Backoff(0.05, 0.5),
            lanes=self.lanes,
            checkpoint_seconds=self.checkpoint_seconds,
            skip_lost_history=self.options.after_gap,
            rows=self.snapshots,
        )
        metrics = Metrics(state.value for state in WatcherState)
        runtime = Runtime(
            driver,
            self.store,
            self.letters,
            MemoryDesiredStates(),
            ClusterIdentity("rs0"),
            ByteBudget(1 << 26),
            metrics,
        )
        return Watcher(plan, runtime)

    @property
    def saved(self) -> SnapshotProgress | None:
        checkpoint = self.store.records.get(self.scope.name)
        return checkpoint.position.snapshot if checkpoint is not None else None

    @property
    def is_done(self) -> bool:
        """True once the end of the snapshot is saved, for every handler."""
        checkpoint = self.store.records.get(self.scope.name)
        of_all = checkpoint.subscriptions.values() if checkpoint is not None else ()
        ends = [each.position.snapshot for each in of_all]
        return bool(ends) and all(one and one.state is SnapshotState.DONE for one in ends)

    async def until_done(self) -> None:
        """Waits until the end of the snapshot is saved."""
        await self.until(lambda: self.is_done)

    async def until_rows(self, more: int) -> None:
        """Waits until ``more`` more rows were handed over, or the snapshot is complete."""
        count = self.recorder.count("read") + more
        await self.until(lambda: self.is_done or self.recorder.count("read") >= count)

    async def until_handled(self, time: Timestamp) -> None:
        """Waits until every handler has handled the stream up to ``time``."""
        await self.until(lambda: self._handled >= time)

    @property
    def _handled(self) -> Timestamp:
        courses = [self.watcher.status, *self.watcher.apart.values()]
        marks = [each.watermark for each in courses]
        return min((mark and mark.handled_time) or Timestamp(0, 0) for mark in marks)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until ``condition`` is true."""
        with anyio.fail_after(60):
            while not condition():
                assert self.watcher.status.state is not WatcherState.HALTED, self.watcher.status
                self._lag = max(self.watcher.status.lags.values(), default=0.0)
                await anyio.sleep(0.002)
        self._lag = 0.0

    def is_behind(self) -> bool:
        """Whether changes wait for seconds to be handled: writers beside it must wait, too."""
        return self._lag > BEHIND_SECONDS


def fold(events: Sequence[ChangeEvent], state: State | None = None) -> State:
    """The state of a destination that writes these events; events must have their documents."""
    state = {} if state is None else state
    for event in events:
        key = event.key
        if key is None:
            continue
        if event.operation_type == "delete":
            state.pop(key, None)
        else:
            document = event.full_document
            assert document is not None, event.document
            state[key] = bson.encode(document)
    return state


def behind_gap(events: Sequence[ChangeEvent]) -> State:
    """Like :func:`fold`, but ``snapshotEnd`` removes keys that no event since the begin named."""
    state: State = {}
    named: set[bytes] = set()
    for event in events:
        if event.operation_type == "snapshotBegin":
            named = set()
        elif event.operation_type == "snapshotEnd":
            state = {key: document for key, document in state.items() if key in named}
        elif event.key is not None:
            named.add(event.key)
            fold([event], state)
    return state


def source(client: Client, database: str, names: Sequence[str]) -> State:
    """The current content of the collections, in the form of :func:`fold`."""
    found: State = {}
    for name in names:
        for document in client[database][name].find():
            of = {"ns": {"db": database, "coll": name}, "documentKey": {"_id": document["_id"]}}
            event = ChangeEvent.from_document({"_id": {}, "operationType": "insert", **of})
            assert event.key is not None
            found[event.key] = bson.encode(document)
    return found


def now(client: Client) -> Timestamp:
    """A server time later than everything that was written.

    The high-water mark with which a stream opens is one tick ahead of the server's time. The next
    write gets the time of that mark, so it would seem handled. This no-op, which no stream shows,
    takes that time instead.
    """
    time = client.admin.command({"appendOplogNote": 1, "data": {}})["operationTime"]
    assert isinstance(time, Timestamp)
    return time


@dataclass(frozen=True)
class Scene:
    """A test's database on a server, and copies of it or of one of its collections."""

    server: ReplicaSet
    client: Client
    database: str

    @property
    def db(self) -> Any:
        return self.client[self.database]

    def copy(self, collection: str | None = None, *parts: Any, **fields: Any) -> Copy:
        """With a recorder, options and other fields of :class:`Copy`."""
        return Copy(self.server.uri, Scope("s", self.database, collection), *parts, **fields)

    def source(self, *names: str) -> State:
        return source(self.client, self.database, names)

    def now(self) -> Timestamp:
        return now(self.client)
