"""How long to wait before a further attempt: the one back-off of the service."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential from ``first_seconds`` to ``cap_seconds``, with jitter of half the delay."""

    first_seconds: float
    cap_seconds: float

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row (at least one)."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, 60)
        return min(doubled, self.cap_seconds) * random.uniform(0.5, 1.0)
