"""What to do when a handler fails."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential from ``first_seconds`` to ``cap_seconds``, with jitter of half the delay."""

    first_seconds: float
    cap_seconds: float

    def delay(self, failures: int) -> float:
        """Seconds to wait after this number of failures in a row (at least one)."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, 60)
        return min(doubled, self.cap_seconds) * random.uniform(0.5, 1.0)


OUTAGE_BACKOFF = Backoff(0.5, 15.0)
"""So a destination is tried at most 15 s after it came back."""


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """How often an event is tried, and what happens after the last attempt.

    An attempt takes at most ``timeout_seconds``. After the last one the event becomes a dead
    letter, or, with ``halt``, the handler halts. It also halts after more than
    ``max_consecutive`` letters in a row, or if more than the share ``max_ratio`` of the last
    ``ratio_window`` events became letters. ``outages`` are errors of the handler, beyond Python's
    own connection errors, which say that its destination is down; ``outage_backoff`` is the time
    between the tries then.
    """

    attempts: int = 1
    backoff: Backoff = Backoff(0.5, 30.0)
    timeout_seconds: float | None = None
    halt: bool = False
    max_consecutive: int = 100
    max_ratio: float = 0.5
    ratio_window: int = 1000
    outages: tuple[type[BaseException], ...] = ()
    outage_backoff: Backoff = OUTAGE_BACKOFF
