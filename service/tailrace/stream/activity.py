"""What is known of a change stream from outside, while somebody waits for its next reply."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog
from bson.timestamp import Timestamp

from tailrace.errors import DriverError, describe
from tailrace.observe.recent_errors import RecentErrors
from tailrace.stream.resumable import reason
from tailrace.stream.server_clock import ServerClock


@dataclass(slots=True)
class StreamActivity:
    """The facts of one scope's streams, which follow one another.

    Streams note them, and whoever wants to know looks; nothing waits for them. ``clock`` is that of
    the process, ``errors`` are those of the scope.
    """

    scope: str = ""
    clock: ServerClock = field(default_factory=ServerClock)
    errors: RecentErrors = field(default_factory=RecentErrors)
    server_time: Timestamp | None = None
    """The newest time that the server told; an election may bring an older one, which is not."""
    answered_at: float | None = None
    heard: float | None = None
    """The same moment by the clock that is never set."""
    resumes: Counter[str] = field(default_factory=Counter)
    """How often a stream went on after an error, by reason."""
    resuming: str = ""
    """The error after which the stream looks for a server, as long as it does."""
    searching: bool = False
    """The server looks for the next change, and has not answered what it was asked last."""
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When one of the last two became so."""

    def answered(self, server_time: Timestamp | None) -> None:
        """The server answered."""
        self.answered_at, self.heard = time.time(), time.monotonic()
        self.clock.answered(server_time)
        if server_time is not None and (self.server_time is None or server_time > self.server_time):
            self.server_time = server_time

    def at_work(self, server_time: Timestamp | None) -> None:
        """It answered on another connection, and searches its oplog: that is no silence."""
        self.answered(server_time)
        self._enter(self.resuming, searching=True)

    def lost(self, error: DriverError) -> None:
        """The stream looks for a server again, which may last."""
        self.errors.note(describe(error))
        self._enter(describe(error), searching=False)

    def opened(self, server_time: Timestamp | None) -> None:
        """The server answered an aggregate, which says nothing of the changes that follow."""
        self.answered(server_time)
        self._enter("", searching=True)

    def resumed(self, error: DriverError) -> None:
        """The stream went on after an error."""
        self.resumes[reason(error)] += 1
        log = structlog.get_logger()
        log.info("stream.resumed", scope=self.scope, reason=reason(error), error=describe(error))

    def settled(self) -> None:
        """The stream has returned what the server answered, or is closed."""
        if self.searching or self.resuming:
            self._enter("", searching=False)

    def _enter(self, resuming: str, *, searching: bool) -> None:
        if (resuming, searching) != (self.resuming, self.searching):
            self.resuming, self.searching, self.since = resuming, searching, datetime.now(UTC)
