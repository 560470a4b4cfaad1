"""Leaves out what a handler has already: a stream begins where the one that has least left off."""

from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent
from tailrace.model import Progress


class HandledBefore:
    """Takes the events of one handler out that its progress holds; once it is ``over``, none.

    Of events with the position's own cluster time (a transaction's) it may be unknown which side
    they lie on. A handler that ``waits`` gets none of them until the position's own event has come;
    any other gets them, rather twice than never.
    """

    def __init__(self, progress: Progress, *, waits: bool) -> None:
        self._progress = progress
        self._waits = waits
        self._handled = set(progress.handled)
        self._passed = False

    @property
    def over(self) -> bool:
        """Whether it has nothing to take out any more."""
        return self._passed and not self._handled

    @property
    def expected(self) -> tuple[frozenset[str], Timestamp | None]:
        """Digests of single events that have not come yet, and the time of the last of them."""
        return frozenset(self._handled), self._progress.until

    def of(self, events: list[ChangeEvent]) -> list[ChangeEvent]:
        """Those of the events that the handler does not have."""
        left = []
        for index, event in enumerate(events):
            if self.over:
                left += events[index:]
                break
            if not self._has(event):
                left.append(event)
        return left

    def _has(self, event: ChangeEvent) -> bool:
        token = event.token
        time = event.cluster_time or token.cluster_time
        if not self._passed:
            covered = self._progress.covers(token, time)
            if covered is not None:
                self._passed = not covered or token == self._progress.token
            if covered or (covered is None and self._waits):
                return True
        until = self._progress.until
        if until is not None and time is not None and time > until:
            self._handled.clear()
        if not self._handled or token.digest not in self._handled:
            return False
        self._handled.remove(token.digest)
        return True
