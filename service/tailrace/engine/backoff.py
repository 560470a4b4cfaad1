"""How long to wait before a watcher is started again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Exponential from ``first_seconds`` to ``cap_seconds``, with jitter of half the delay."""

    first_seconds: float
    cap_seconds: float


class Backoff:
    """The delays of one watcher: each longer than the last, until :meth:`reset`."""

    def __init__(self, policy: BackoffPolicy) -> None:
        self._policy = policy
        self._failures = 0

    def next_delay(self) -> float:
        """Seconds to wait after one more failure."""
        doubled = self._policy.first_seconds * 2.0 ** min(self._failures, 60)
        self._failures += 1
        return min(doubled, self._policy.cap_seconds) * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """There was progress: the next failure waits from the first delay again."""
        self._failures = 0
