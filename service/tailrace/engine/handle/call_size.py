"""Makes the calls of a handler smaller while its destination finds them too large or too slow.

A call that meets a limit of the other side, or its own time limit, would meet it again unchanged.
Its events come in calls of half the size, down to one event (or one transaction), and so do later
ones; more again once such calls have worked for a while.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tailrace.engine.ports import PerBatch, PerEvent
from tailrace.errors import AttemptTimedOut, BatchTooLarge, describe
from tailrace.event import ChangeEvent

GROWS_AFTER = 8
"""After so many calls of the reduced size the next ones get twice as many events."""


@dataclass(slots=True)
class CallSize:
    """How many events a call of one handler on one scope gets."""

    scope: str
    handler: str
    calls: PerEvent | PerBatch
    _most: int | None = None
    """The bound while it is below that of the settings."""
    _worked: int = 0

    @property
    def most(self) -> int:
        """The most events of the next call."""
        return self._largest if self._most is None else min(self._largest, self._most)

    @property
    def _largest(self) -> int:
        return self.calls.events if isinstance(self.calls, PerBatch) else 1

    def reduced(self, units: Sequence[Sequence[ChangeEvent]], error: BaseException) -> bool:
        """Halves the size after a call that failed, if smaller ones may work.

        ``units``: the events of the call, as they may be divided.
        """
        if len(units) < 2 or not isinstance(error, (BatchTooLarge, AttemptTimedOut)):
            return False
        events = sum(map(len, units))
        self._most, self._worked = events // 2, 0
        structlog.get_logger().warning(
            "batch.reduced" if isinstance(error, BatchTooLarge) else "handler.failed",
            scope=self.scope,
            handler=self.handler,
            events=events,
            next_events=self._most,
            error=describe(error),
        )
        return True

    def divided(
        self, units: Sequence[Sequence[ChangeEvent]]
    ) -> tuple[Sequence[ChangeEvent], Sequence[Sequence[ChangeEvent]]]:
        """The events of the next call, one unit at least, and the units that are left."""
        most, count, size = self.most, 1, len(units[0])
        while count < len(units) and size + len(units[count]) <= most:
            size += len(units[count])
            count += 1
        return [event for unit in units[:count] for event in unit], units[count:]

    def worked(self, events: int) -> None:
        """Notes a call that worked."""
        if self._most is None or events < self._most:
            return
        self._worked += 1
        if self._worked >= GROWS_AFTER:
            most, self._worked = self._most * 2, 0
            self._most = most if most < self._largest else None
