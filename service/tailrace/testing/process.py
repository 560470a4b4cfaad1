"""One process of the service, without a server: a handler of its own, and a watcher of the scope.

It can end as a process does that is killed: nothing that it does afterwards is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from bson.timestamp import Timestamp

from tailrace.assembly import scope_plans
from tailrace.config.settings import Settings
from tailrace.engine import ByteBudget, Handler, Runtime, Watcher, WatcherState
from tailrace.engine.position.watermarks import Watermarks
from tailrace.errors import TailraceError
from tailrace.model import Checkpoint, Position, PositionKind, ResumeToken
from tailrace.model.cluster import ClusterIdentity
from tailrace.observe.metrics import Metrics
from tailrace.stores.memory import MemoryCheckpoints, MemoryDeadLetters, MemoryDesiredStates
from tailrace.stream import Interrupt
from tailrace.testing.entry import Entry
from tailrace.testing.faults import Faults
from tailrace.testing.oplog import Oplog
from tailrace.testing.snapshot_server import MemorySnapshotServer
from tailrace.testing.stream import MemoryDriver
from tailrace.testing.target import AT_ONCE, NAME, opened

CLUSTER = ClusterIdentity("rs0", "testing")
_SAVE_SECONDS = 0.005


@dataclass(slots=True)
class Disk:
    """What outlives a process."""

    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)

    def set_back(self, scope: str, entries: Sequence[Entry], changes: int) -> None:
        """Sets the checkpoint back by so many changes."""
        before = self.checkpoints[scope]
        snapshot = before.position.snapshot
        if changes >= len(entries):
            time = entries[0].time if entries else None
            older = Position(PositionKind.IDLE, None, None, time, snapshot=snapshot)
        else:
            entry = entries[-changes - 1]
            token = ResumeToken.of({"_data": entry.token})
            older = Position(PositionKind.EVENT, token, token, entry.time, snapshot=snapshot)
        self.checkpoints[scope] = replace(before, position=older)


class _Checkpoints(MemoryCheckpoints):
    """The checkpoints as one process stores them, as long as it lives."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk.checkpoints)
        self.alive = True

    async def save(self, checkpoint: Checkpoint) -> None:
        if self.alive:
            await super().save(checkpoint)


class Process:
    """Follows the scope of ``settings`` with a handler of its own until it is stopped or killed."""

    def __init__(
        self, target: Any, settings: Settings, oplog: Oplog, disk: Disk, faults: Faults
    ) -> None:
        self._target = target
        self._settings = settings
        self._oplog = oplog
        self._disk = disk
        self._faults = faults
        self._stop = Interrupt()
        self._running = anyio.CancelScope()
        self._store = _Checkpoints(disk)
        self._ended = anyio.Event()
        self.watcher: Watcher | None = None
        self.handler: Handler | None = None
        self.failure: BaseException | None = None
        """Why it could not be started."""

    async def run(self) -> None:
        """Until the stop, the kill, or a halt."""
        try:
            with self._running:
                async with opened(self._target, self._settings) as handler:
                    self.handler = handler
                    self.watcher = self._watcher(self._faults.around(handler))
                    await self.watcher.run(self._stop)
        except TailraceError as error:
            self.failure = error
        finally:
            self._ended.set()

    def _watcher(self, handler: Any) -> Watcher:
        server = MemorySnapshotServer(self._oplog)
        (plan,) = scope_plans(self._settings, lambda scope: {NAME: handler}, lambda scope: server)
        runtime = Runtime(
            MemoryDriver(self._oplog),
            self._store,
            self._disk.letters,
            MemoryDesiredStates(),
            CLUSTER,
            ByteBudget(self._settings.delivery.max_in_flight_bytes),
            Metrics(state.value for state in WatcherState),
        )
        return Watcher(replace(plan, backoff=AT_ONCE, checkpoint_seconds=_SAVE_SECONDS), runtime)

    # --- its end ---------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops it as SIGTERM does: it drains, saves and closes its handler."""
        self._stop.set()
        self._oplog.wake()
        await self._ended.wait()

    def kill(self) -> None:
        """Ends it as SIGKILL does: calls are cut off, and nothing more is stored."""
        self._store.alive = False
        self._running.cancel()

    @property
    def killed(self) -> bool:
        """Whether it was killed."""
        return not self._store.alive

    @property
    def ended(self) -> bool:
        """Whether it has ended: nothing of it runs any more."""
        return self._ended.is_set()

    @property
    def replaced(self) -> bool:
        """Whether it has given the scope up, because another process follows it."""
        return self.watcher is not None and self.watcher.fenced

    @property
    def trouble(self) -> str:
        """Why it handles nothing any more; empty if it does."""
        if self.failure is not None:
            return str(self.failure)
        if self.watcher is None or self.watcher.status.state is not WatcherState.HALTED:
            return ""
        return self.watcher.status.reason

    @property
    def condition(self) -> str:
        """The state of the scope, and the last error."""
        if self.watcher is None:
            return "the scope is not started"
        status = self.watcher.status
        last = status.errors.last
        error = f"; the last error: {last.message}" if last is not None else ""
        return f"the scope is {status.state.value}: {status.explanation}{error}"

    # --- what it has done ------------------------------------------------------------------

    @property
    def follows(self) -> bool:
        """Whether it has opened its stream: it gets what is written from now on."""
        watermark = self.watermark
        return watermark is not None and watermark.handled_time is not None

    @property
    def idle(self) -> bool:
        """Whether every change and every row is handled."""
        watermark, rows = self.watermark, self.watcher and self.watcher.plan.rows
        if self.killed or self.ended or not rows or rows.active:
            return False
        if watermark is None or not watermark.empty:
            return False
        return self._covers_all(watermark.handled_time)

    @property
    def waits(self) -> bool:
        """Whether its destination is down, as far as it knows."""
        recorders = self.watcher.status.recorders if self.watcher is not None else {}
        return NAME in recorders and recorders[NAME].down_since is not None

    @property
    def saved(self) -> bool:
        """Whether the checkpoint says that everything is handled."""
        found = self._disk.checkpoints.get(self._settings.scopes[0].name)
        return self._covers_all(found.position.cluster_time if found is not None else None)

    def _covers_all(self, time: Timestamp | None) -> bool:
        entries = self._oplog.entries
        return time is not None and (not entries or time > entries[-1].time)

    @property
    def watermark(self) -> Watermarks | None:
        """Of its current run."""
        return self.watcher.status.watermark if self.watcher is not None else None

    def snapshot(self) -> str:
        """Asks for a snapshot; returns why there can be none, or an empty string."""
        rows = self.watcher.plan.rows if self.watcher is not None else None
        if rows is None:
            return "the scope is not followed"
        if isinstance(wanted := rows.start((), ""), str):
            return wanted
        seen = rows.observed()
        last = seen.progress.observed_generation if seen is not None else 0
        rows.apply(last + 1, wanted)
        return ""
