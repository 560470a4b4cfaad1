"""The server's time, and whether the server answers: one clock for all streams of a process."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bson.timestamp import Timestamp

from tailrace.stream.driver_port import CommandRunner

ASK_SECONDS = 1.0
"""How often the server is asked for its time, whatever the streams do: as often as an idle stream
is answered with mongod's default (maxAwaitTimeMS 1000)."""
LATE_SECONDS = 1.5
"""How late an answer may be. A server that is silent for longer counts as unreachable."""
SILENCE_SECONDS = ASK_SECONDS + LATE_SECONDS


@dataclass(frozen=True, slots=True)
class OplogRange:
    """From ``begin``, the oldest entry, to the newest one; when full it spans ``seconds``."""

    begin: Timestamp
    seconds: float


@dataclass(slots=True)
class ServerClock:
    """The newest time of the server; while it is unreachable, an estimate."""

    monotonic: Callable[[], float] = time.monotonic
    oplog: OplogRange | None = None
    """What the oplog holds, as last read; ``None`` if we may not read it."""
    _time: Timestamp | None = field(default=None, init=False)
    _heard: float | None = field(default=None, init=False)
    _heard_at: float = field(default=0.0, init=False)

    def answered(self, server_time: Timestamp | None) -> None:
        """Notes an answer, which may be an error; the clock never goes backwards here."""
        self._heard, self._heard_at = self.monotonic(), time.time()
        if server_time is not None and (self._time is None or server_time > self._time):
            self._time = server_time

    @property
    def newest(self) -> Timestamp | None:
        """The newest time that any member has told; ``None`` before the first."""
        return self._time

    @property
    def up(self) -> bool | None:
        """Whether the server answers; ``None`` before the first answer."""
        return None if self._heard is None else self._silence <= SILENCE_SECONDS

    @property
    def last_answer(self) -> datetime | None:
        """When the last answer came, by this machine's clock."""
        return None if self._heard is None else datetime.fromtimestamp(self._heard_at, UTC)

    def now(self) -> Timestamp | None:
        """The server's time, if known; while it is unreachable, the last one plus the silence.

        The silence counts from the last answer, so that an outage of 3 s shows as 3 s.
        """
        if self._time is None or self.up:
            return self._time
        return Timestamp(self._time.time + int(self._silence), self._time.inc)

    @property
    def _silence(self) -> float:
        return 0.0 if self._heard is None else self.monotonic() - self._heard


async def server_time(server: CommandRunner) -> Timestamp | None:
    """The time of the primary's last write; ``None`` if the server does not tell it."""
    return _timestamp((await server.run("admin", {"ping": 1})).get("operationTime"))


async def oplog_time(server: CommandRunner, order: int = 1) -> Timestamp | None:
    """The time of the oplog's oldest (1) or newest (-1) entry; ``None`` if it has no entries.

    Raises :class:`tailrace.errors.CommandFailed` if this user may not ask, or it is a mongos.
    """
    command = {"find": "oplog.rs", "sort": {"$natural": order}, "limit": 1, "singleBatch": True}
    reply = await server.run("local", {**command, "projection": {"_id": 0, "ts": 1}})
    entries = reply.get("cursor", {}).get("firstBatch")
    return _timestamp(entries[0].get("ts")) if entries else None


def _timestamp(value: object) -> Timestamp | None:
    return value if isinstance(value, Timestamp) else None
