"""The last errors of a scope: the message, the first and last time, and the count."""

from collections import deque
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

_KEPT = 8


@dataclass(slots=True)
class RecentError:
    """One error, or several equal errors in a row; times are ISO 8601."""

    message: str
    first_at: str
    last_at: str
    times: int = 1


class RecentErrors:
    """The newest errors."""

    def __init__(self) -> None:
        self._kept: deque[RecentError] = deque(maxlen=_KEPT)

    def note(self, message: str) -> None:
        """Adds an error. If it equals the last one, only raises the count."""
        now = datetime.now(UTC).isoformat()
        last = self.last
        if last is not None and last.message == message:
            last.last_at, last.times = now, last.times + 1
        else:
            self._kept.append(RecentError(message, now, now))

    @property
    def last(self) -> RecentError | None:
        """The newest error."""
        return self._kept[-1] if self._kept else None

    def documents(self) -> list[dict[str, Any]]:
        """The errors for ``/status``, the newest first."""
        return [asdict(error) for error in reversed(self._kept)]
