"""Asks the server, beside the streams, what time it is there and how far back its history goes.

A stream that waits for handlers, or for a person, hears nothing of the server's time, and its lag
would stand still. And a lag alone does not say how long it may last: the oplog does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import anyio
import structlog
from bson.timestamp import Timestamp

from service.engine.ports import CommandRunner
from service.errors import CommandFailed, DriverError, describe

CLOCK_SECONDS = 5.0
"""An idle primary moves its own time by a no-op every 10 s."""
OPLOG_SECONDS = 60.0


class ClusterWatch:
    """One task of a process. :attr:`server_time` and :attr:`oplog_window` are the last answers.

    ``clock_seconds`` and ``oplog_seconds`` are the times between two questions.
    """

    def __init__(
        self,
        server: CommandRunner,
        *,
        clock_seconds: float = CLOCK_SECONDS,
        oplog_seconds: float = OPLOG_SECONDS,
    ) -> None:
        self.server_time: Timestamp | None = None
        self.oplog_window: float | None = None
        """Seconds between the first and the last entry; ``None`` where we may not read them."""
        self._server = server
        self._clock_seconds = clock_seconds
        self._rounds = max(round(oplog_seconds / clock_seconds), 1)
        self._refused = False
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Asks until it is cancelled. No answer is worth an end, or a word above debug."""
        for number in itertools.count():
            await self._ask_time()
            if number % self._rounds == 0:
                await self._ask_oplog()
            await anyio.sleep(self._clock_seconds)

    async def _ask_time(self) -> None:
        try:
            reply = await self._server.run("admin", {"ping": 1})
        except DriverError as error:
            self._log.debug("cluster.silent", error=describe(error))
            return
        time = reply.get("operationTime")
        if isinstance(time, Timestamp) and (self.server_time is None or time > self.server_time):
            self.server_time = time

    async def _ask_oplog(self) -> None:
        """A refusal (no role, a mongos) makes it unknown; a network's failure changes nothing."""
        try:
            first, last = await self._entry(1), await self._entry(-1)
        except CommandFailed as error:
            self.oplog_window = None
            self._unreadable(describe(error))
            return
        except DriverError as error:
            self._log.debug("cluster.silent", error=describe(error))
            return
        if first is None or last is None:
            self.oplog_window = None
            self._unreadable("local.oplog.rs has no entries here")
            return
        self._refused = False
        self.oplog_window = float(max(last.time - first.time, 0))

    async def _entry(self, order: int) -> Timestamp | None:
        """The time of the oldest (1) or the newest (-1) entry."""
        reply = await self._server.run(
            "local",
            {
                "find": "oplog.rs",
                "sort": {"$natural": order},
                "limit": 1,
                "singleBatch": True,
                "projection": {"_id": 0, "ts": 1},
            },
        )
        return _time_of(reply)

    def _unreadable(self, why: str) -> None:
        if not self._refused:
            self._log.debug("oplog.unreadable", reason=why)
        self._refused = True


def _time_of(reply: Mapping[str, Any]) -> Timestamp | None:
    cursor = reply.get("cursor")
    batch = cursor.get("firstBatch") if isinstance(cursor, Mapping) else None
    entry = batch[0] if isinstance(batch, list) and batch else None
    time = entry.get("ts") if isinstance(entry, Mapping) else None
    return time if isinstance(time, Timestamp) else None
