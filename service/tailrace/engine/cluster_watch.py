"""Asks the server for its time and for the span of its oplog, independently of the streams.

A stream that is paused or halted receives no server time, and its lag would stand still. And the
lag alone does not say how much of it the oplog still covers.
"""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine.ports import CommandRunner
from tailrace.errors import CommandFailed, DriverError, describe
from tailrace.observe.gauges import OplogGauges, ServerGauges
from tailrace.stream import ServerClock

CLOCK_SECONDS = 5.0
"""An idle primary moves its own time by a no-op every 10 s."""
OPLOG_SECONDS = 60.0
ASK_SECONDS = 40.0
"""A question is given up then: a connection that looks open may never answer. Above the time that
the drivers look for a primary (serverSelectionTimeoutMS, 30 s unless the URI says otherwise)."""


@dataclass
class ClusterWatch:
    """One task of a process, which tells ``clock`` each answer."""

    server: CommandRunner
    clock: ServerClock
    clock_seconds: float = CLOCK_SECONDS
    oplog_seconds: float = OPLOG_SECONDS
    ask_seconds: float = ASK_SECONDS
    """How long an answer may take; the other two are the times between two questions."""
    _oplog: OplogGauges | None = None
    """The last reading; ``None`` where we may not read it."""
    _read_at: float = 0.0

    def gauges(self) -> ServerGauges:
        """For a scrape."""
        age = time.monotonic() - self._read_at
        return ServerGauges(self.clock.up, self._oplog and replace(self._oplog, age=age))

    def document(self) -> dict[str, Any]:
        """For ``/status``: JSON types."""
        clock = self.clock
        last = clock.last_answer and clock.last_answer.isoformat()
        return {
            "up": clock.up,
            "last_answer": last,
            "unreachable_since": last if clock.up is False else None,
            "oplog_window_seconds": self._oplog and self._oplog.window,
        }

    async def run(self) -> None:
        """Asks until it is cancelled. Failures are logged at debug level only."""
        rounds = max(round(self.oplog_seconds / self.clock_seconds), 1)
        for number in itertools.count():
            with anyio.move_on_after(self.ask_seconds):
                await self._ask_time()
                if number % rounds == 0:
                    await self._ask_oplog()
            await anyio.sleep(self.clock_seconds)

    async def _ask_time(self) -> None:
        try:
            reply = await self.server.run("admin", {"ping": 1})
        except CommandFailed as error:
            self.clock.answered(None)
            structlog.get_logger().debug("cluster.time_unknown", error=describe(error))
        except DriverError as error:
            structlog.get_logger().debug("cluster.silent", error=describe(error))
        else:
            now = reply.get("operationTime")
            self.clock.answered(now if isinstance(now, Timestamp) else None)

    async def _ask_oplog(self) -> None:
        """A refusal (no role, a mongos) makes it unknown; a network's failure changes nothing."""
        try:
            first, last = await self._entry(1), await self._entry(-1)
            fill = await self._fill()
        except CommandFailed as error:
            self._oplog = None
            structlog.get_logger().debug("oplog.unreadable", reason=describe(error))
        except DriverError as error:
            structlog.get_logger().debug("cluster.silent", error=describe(error))
        else:
            self._oplog = None
            if first is not None and last is not None:
                self._oplog = OplogGauges(float(max(last.time - first.time, 0)), fill, 0.0)
                self._read_at = time.monotonic()

    async def _entry(self, order: int) -> Timestamp | None:
        """The time of the oldest (1) or the newest (-1) entry."""
        reply = await self.server.run(
            "local",
            {
                "find": "oplog.rs",
                "sort": {"$natural": order},
                "limit": 1,
                "singleBatch": True,
                "projection": {"_id": 0, "ts": 1},
            },
        )
        at = _first(reply).get("ts")
        return at if isinstance(at, Timestamp) else None

    async def _fill(self) -> float | None:
        """How much of its size the oplog uses. The same role that reads it may ask for that."""
        fields = {"_id": 0, "size": "$storageStats.size", "limit": "$storageStats.maxSize"}
        try:
            reply = await self.server.run(
                "local",
                {
                    "aggregate": "oplog.rs",
                    "pipeline": [{"$collStats": {"storageStats": {}}}, {"$project": fields}],
                    "cursor": {},
                },
            )
        except CommandFailed as error:
            structlog.get_logger().debug("oplog.size_unknown", error=describe(error))
            return None
        sizes = _first(reply)
        try:
            return min(float(sizes["size"] / sizes["limit"]), 1.0)
        except (LookupError, TypeError, ZeroDivisionError):
            return None


def _first(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    batch = reply.get("cursor", {}).get("firstBatch")
    return batch[0] if batch else {}
