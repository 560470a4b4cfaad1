"""When tables are published because of the time."""

import time
from dataclasses import dataclass, field

PAUSE = 10
"""All tables are published again after this many times as long as it lasted: large ones cost a
tenth of the time at most."""


@dataclass(slots=True)
class Schedule:
    """``seconds``: ``publish_seconds`` of the settings."""

    seconds: float
    _some_at: float = field(default_factory=time.monotonic)
    _all_at: float = field(default_factory=time.monotonic)
    _lasted: float = 0.0

    def is_due(self) -> bool:
        """Whether small tables are published now."""
        return time.monotonic() - self._some_at >= self.seconds

    def all_are_due(self) -> bool:
        """Whether all tables are."""
        return self.is_due() and time.monotonic() - self._all_at >= self._lasted * PAUSE

    def published_some(self) -> None:
        """Notes that all small tables are published."""
        self._some_at = time.monotonic()

    def published_all(self, began: float) -> None:
        """Notes that all tables are, by work that began then (``time.monotonic``)."""
        self._some_at = self._all_at = time.monotonic()
        self._lasted = self._all_at - began
