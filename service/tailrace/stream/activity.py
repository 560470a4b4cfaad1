"""What a change stream is doing, for status and metrics."""

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.errors import DriverError, describe
from tailrace.observe.recent_errors import RecentErrors
from tailrace.stream.resumable import reason
from tailrace.stream.server_clock import LATE_SECONDS, ServerClock

MEMBER_LAG_SECONDS = 5.0
"""By how much a member may be behind the set before that is said. Members that replicate are behind
by far less, also in a set without writes: a no-op counts, too."""

_BUSY_SECONDS = 1.0
"""A stream whose last changes are more recent than this is busy."""


@dataclass(slots=True)
class StreamActivity:
    """The state of one scope's streams, of which one is open at a time."""

    scope: str = ""
    clock: ServerClock = field(default_factory=ServerClock)
    errors: RecentErrors = field(default_factory=RecentErrors)
    resumes: Counter[str] = field(default_factory=Counter)
    server_time: Timestamp | None = None
    """The newest time of the server; an older one, as after an election, is ignored."""
    set_time: Timestamp | None = None
    """The newest time that any member of the set had told when the last answer came."""
    member: str = ""
    """The server that answers."""
    member_lag: float = 0.0
    """Seconds by which it is behind the set, if that is more than a member may be."""
    answered_at: float | None = None
    heard: float | None = None
    """The same moment as ``answered_at``, by the clock's ``monotonic``."""
    changed_at: float = 0.0
    """When changes last came, by the event loop's clock."""
    cursors: int = 0
    """How many cursors were opened: each may be of a server that was restored meanwhile."""
    resuming: str = ""
    """While the stream is being reopened: the error that ended it."""
    await_seconds: float = 1.0
    """How long the current read may wait for a change (mongod's default: 1 s)."""
    searching: bool = False
    """The server searches its oplog and has not answered the last ``getMore``."""
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When ``resuming`` or ``searching`` last changed."""

    @property
    def is_busy(self) -> bool:
        """Whether changes have just come: more will, and would wait for long reads of documents."""
        return anyio.current_time() - self.changed_at < _BUSY_SECONDS

    def answered(self, server_time: Timestamp | None) -> None:
        self.answered_at, self.heard = time.time(), self.clock.monotonic()
        self.clock.answered(server_time)
        if server_time is not None and (self.server_time is None or server_time > self.server_time):
            self.server_time = server_time
        if server_time is not None and (newest := self.clock.newest) is not None:
            self.set_time, behind = newest, newest.time - server_time.time
            if behind > MEMBER_LAG_SECONDS or self.member_lag:
                self._compared(behind)

    @property
    def late(self) -> bool:
        """Whether the answer to the current read, or the server's, is due.

        False before the first answer.
        """
        if self.heard is None:
            return False
        silence = self.clock.monotonic() - self.heard
        return silence > self.await_seconds + LATE_SECONDS or self.clock.up is False

    def at_work(self, server_time: Timestamp | None) -> None:
        """The server answered on another connection that it searches its oplog."""
        self.answered(server_time)
        self._enter(self.resuming, searching=True)

    def lost(self, error: DriverError) -> None:
        """The stream failed and is being reopened."""
        self.errors.note(describe(error))
        self._enter(describe(error), searching=False)

    def opened(self, server_time: Timestamp | None, member: str = "") -> None:
        """The server answered an aggregate, and searches for the first change."""
        self.cursors += 1
        self.member = member
        self.answered(server_time)
        self._enter("", searching=True)

    def resumed(self, error: DriverError) -> None:
        """The stream continues after an error."""
        self.resumes[reason(error)] += 1
        log = structlog.get_logger()
        log.info("stream.resumed", scope=self.scope, reason=reason(error), error=describe(error))

    def settled(self) -> None:
        """The stream has returned the server's reply, or is closed."""
        if self.searching or self.resuming:
            self._enter("", searching=False)

    def _compared(self, behind: float) -> None:
        """Notes by how much the member is behind, and logs when that begins and ends."""
        before, self.member_lag = self.member_lag, behind if behind > MEMBER_LAG_SECONDS else 0.0
        log = structlog.get_logger().bind(scope=self.scope, member=self.member)
        if self.member_lag and not before:
            log.warning("member.fallen_behind", seconds=behind)
        elif before and not self.member_lag:
            log.info("member.caught_up")

    def _enter(self, resuming: str, *, searching: bool) -> None:
        if (resuming, searching) != (self.resuming, self.searching):
            self.resuming, self.searching, self.since = resuming, searching, datetime.now(UTC)
