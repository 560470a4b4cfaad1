"""The last errors of a scope: the message, the first and last time, and the count."""

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_KEPT = 8


@dataclass(slots=True)
class RecentError:
    """One error, or the same one several times in a row."""

    message: str
    first_at: datetime
    last_at: datetime
    times: int = 1


class RecentErrors:
    """The newest errors; :attr:`count` counts all."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: deque[RecentError] = deque(maxlen=_KEPT)

    def note(self, message: str) -> None:
        """Adds an error. The same one again only raises its count."""
        now = datetime.now(UTC)
        self.count += 1
        last = self.last
        if last is not None and last.message == message:
            last.last_at, last.times = now, last.times + 1
        else:
            self._kept.append(RecentError(message, now, now))

    @property
    def last(self) -> RecentError | None:
        """The newest one."""
        return self._kept[-1] if self._kept else None

    def documents(self) -> list[dict[str, Any]]:
        """For ``/status``: the newest first."""
        return [
            {
                "message": error.message,
                "first_at": error.first_at.isoformat(),
                "last_at": error.last_at.isoformat(),
                "times": error.times,
            }
            for error in reversed(self._kept)
        ]
