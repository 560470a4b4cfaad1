"""What a handler has beyond the position from which its scope continues."""

from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent
from tailrace.model import Progress


class HandledBefore:
    """Removes the events that a handler has already, by its progress; once it is ``over``, none.

    It may be unknown whether events with the position's own cluster time (a transaction's) come
    before or after it. With ``waits``, the handler gets none of these until the position's own
    event has come. Otherwise it gets them: a repeated event is better than a lost one.
    """

    def __init__(self, progress: Progress, *, waits: bool) -> None:
        self._progress = progress
        self._waits = waits
        self._handled = set(progress.handled)
        self._passed = False

    @property
    def over(self) -> bool:
        """Whether no further event has to be removed."""
        return self._passed and not self._handled

    @property
    def expected(self) -> tuple[frozenset[str], Timestamp | None]:
        """Digests of handled single events that have not come yet, and the last one's time."""
        return frozenset(self._handled), self._progress.until

    def ends_by(self, time: Timestamp) -> bool:
        """Whether every event to remove is known to be no later than ``time``."""
        progress = self._progress
        if self._handled and (progress.until is None or progress.until > time):
            return False
        at = progress.cluster_time or (progress.token and progress.token.cluster_time)
        return at <= time if at is not None else progress.token is None

    def of(self, events: list[ChangeEvent]) -> list[ChangeEvent]:
        """The events that the handler does not have."""
        return [event for event in events if self.over or not self._has(event)]

    def _has(self, event: ChangeEvent) -> bool:
        token = event.token
        time = event.cluster_time or token.cluster_time
        if not self._passed:
            last = self._progress.token
            covered = self._progress.covers(token, time)
            if covered is not None:
                self._passed = not covered or (last is not None and last.is_at(token))
            if covered or (covered is None and self._waits):
                return True
        until = self._progress.until
        if until is not None and time is not None and time > until:
            self._handled.clear()
        if not self._handled or token.digest not in self._handled:
            return False
        self._handled.remove(token.digest)
        return True
