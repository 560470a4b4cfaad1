"""Periodic queries beside the streams, each in its own task: server, dead letters, desired states.

A paused or halted stream receives no server time, so its lag would not grow. The lag alone does not
tell whether the oplog still covers it. Dead letters outlive the process. Any process may write
desired states.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine.ports import DeadLetterStore, DesiredStateStore
from tailrace.errors import (
    CheckpointError,
    CommandFailed,
    DeadLetterError,
    DriverError,
    describe,
)
from tailrace.model.desired_state import DesiredState
from tailrace.observe.metrics import Metrics
from tailrace.observe.scrape import ServerGauges
from tailrace.stream import ASK_SECONDS, CommandRunner, OplogRange, ServerClock
from tailrace.stream.server_clock import oplog_time, server_time

_PAUSE_RATIO = 50.0
"""After a slow count, the pause is this many times as long: counting takes 2 % of the time."""


@dataclass
class ClusterWatch:
    """Asks the server for its time, which it passes to ``clock``, and for its oplog's span."""

    server: CommandRunner
    clock: ServerClock
    clock_seconds: float = ASK_SECONDS
    """Time between two questions for the server's time."""
    oplog_seconds: float = 10.0
    ask_seconds: float = 40.0
    """Time limit of a round of questions: a connection that looks open may never answer. Longer
    than the drivers search for a primary (serverSelectionTimeoutMS, by default 30 s)."""
    _window: float | None = None
    """Seconds, as last read; ``None`` if we may not read the oplog."""
    _used: float | None = None
    _read_at: float = 0.0

    def gauges(self) -> ServerGauges:
        """For a scrape."""
        if self._window is None:
            return ServerGauges(self.clock.up)
        age = time.monotonic() - self._read_at
        return ServerGauges(self.clock.up, self._window, self._used, age)

    def document(self) -> dict[str, Any]:
        """For ``/status``: JSON types."""
        clock = self.clock
        last = clock.last_answer and clock.last_answer.isoformat()
        return {
            "up": clock.up,
            "last_answer": last,
            "unreachable_since": last if clock.up is False else None,
            "oplog_window_seconds": self._window,
        }

    async def run(self) -> None:
        """Asks until it is cancelled. Failures are logged at debug level only."""
        rounds = max(round(self.oplog_seconds / self.clock_seconds), 1)
        for number in itertools.count():
            with anyio.move_on_after(self.ask_seconds):
                try:
                    await self.time()
                    if number % rounds == 0:
                        await self.ask_oplog()
                except DriverError as error:
                    structlog.get_logger().debug("cluster.silent", error=describe(error))
            await anyio.sleep(self.clock_seconds)

    async def time(self) -> Timestamp | None:
        """The time of the primary's last write; ``None`` if it does not tell.

        Raises :class:`tailrace.errors.DriverError` if it does not answer.
        """
        now = None
        try:
            now = await server_time(self.server)
        except CommandFailed as error:
            structlog.get_logger().debug("cluster.time_unknown", error=describe(error))
        self.clock.answered(now)
        return now

    async def ask_oplog(self) -> None:
        """A refusal (no role, a mongos) makes the span unknown; a network error changes nothing."""
        window = used = oplog = None
        try:
            first, last = await oplog_time(self.server), await oplog_time(self.server, -1)
            used = await self._fill()
            if first is not None and last is not None:
                window = float(max(last.time - first.time, 0))
                oplog = OplogRange(first, window / (used or 1.0))
        except CommandFailed as error:
            structlog.get_logger().debug("oplog.unreadable", reason=describe(error))
        self._window, self._used, self._read_at = window, used, time.monotonic()
        self.clock.oplog = oplog

    async def _fill(self) -> float | None:
        """The part of its maximal size that the oplog uses (0 to 1). Needs no further role."""
        fields = {"_id": 0, "size": "$storageStats.size", "limit": "$storageStats.maxSize"}
        stages = [{"$collStats": {"storageStats": {}}}, {"$project": fields}]
        try:
            command = {"aggregate": "oplog.rs", "pipeline": stages, "cursor": {}}
            sizes = (await self.server.run("local", command))["cursor"]["firstBatch"][0]
            return min(float(sizes["size"] / sizes["limit"]), 1.0)
        except CommandFailed as error:
            structlog.get_logger().debug("oplog.size_unknown", error=describe(error))
        except (LookupError, TypeError, ZeroDivisionError):
            pass
        return None


async def watch_letters(letters: DeadLetterStore, metrics: Metrics, seconds: float = 5.0) -> None:
    """Reports the number of waiting letters until cancelled; a failure keeps the last number."""
    failed = False
    while True:
        started = anyio.current_time()
        try:
            metrics.letters_waiting(await letters.count())
            failed = False
        except DeadLetterError as error:
            if not failed:
                structlog.get_logger().warning("dead_letters.count_failed", error=describe(error))
            failed = True
        took = anyio.current_time() - started
        await anyio.sleep(max(seconds, _PAUSE_RATIO * took))


async def watch_desired_states(
    states: DesiredStateStore, receive: Callable[[DesiredState], None], seconds: float = 1.0
) -> None:
    """Reads the desired states in the store until cancelled.

    A failure is logged once, and so is a record that cannot be read: the other scopes go on.
    """
    failed, unreadable = False, dict[str, str]()
    while True:
        try:
            table = await states.list()
            for desired in table.states:
                receive(desired)
            for scope, reason in table.unreadable.items():
                if unreadable.get(scope) != reason:
                    structlog.get_logger().warning(
                        "desired_state.unreadable", scope=scope, error=reason
                    )
            unreadable, failed = dict(table.unreadable), False
        except CheckpointError as error:
            if not failed:
                structlog.get_logger().warning("desired_states.unreadable", error=describe(error))
            failed = True
        await anyio.sleep(seconds)
