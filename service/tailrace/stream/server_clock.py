"""The server's time, and whether the server answers: one clock for all streams of a process."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bson.timestamp import Timestamp

SILENCE_SECONDS = 20.0
"""The server counts as unreachable after this time without an answer. We ask it every 5 s, and an
election after a crash takes some 12 s with mongod's defaults (electionTimeoutMillis 10000)."""


@dataclass(slots=True)
class ServerClock:
    """The newest time of the server; while it is unreachable, an estimate."""

    monotonic: Callable[[], float] = time.monotonic
    _time: Timestamp | None = field(default=None, init=False)
    _heard: float | None = field(default=None, init=False)
    _heard_at: float = field(default=0.0, init=False)

    def answered(self, server_time: Timestamp | None) -> None:
        """Notes an answer, which may be an error; the clock never goes backwards here."""
        self._heard, self._heard_at = self.monotonic(), time.time()
        if server_time is not None and (self._time is None or server_time > self._time):
            self._time = server_time

    @property
    def up(self) -> bool | None:
        """Whether the server answers; ``None`` before the first answer."""
        return None if self._heard is None else self._silence <= SILENCE_SECONDS

    @property
    def last_answer(self) -> datetime | None:
        """When the last answer came, by this machine's clock."""
        return None if self._heard is None else datetime.fromtimestamp(self._heard_at, UTC)

    def now(self) -> Timestamp | None:
        """The server's time, if known; while it is unreachable, the last one plus the silence."""
        if self._time is None or self.up:
            return self._time
        return Timestamp(self._time.time + int(self._silence), self._time.inc)

    @property
    def _silence(self) -> float:
        return 0.0 if self._heard is None else self.monotonic() - self._heard
