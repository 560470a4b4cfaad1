"""How long after changes happened a handler had them: a histogram, in plain integers."""

import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

LATENCIES = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21_600, 86_400,
)  # fmt: skip
"""The upper bounds of its buckets, in seconds: from an idle machine to a day of catching up."""


@dataclass(slots=True)
class Latency:
    """Counts changes by the seconds from the server's clock at the change to this machine's clock
    when it was handled; a difference below 0, between the clocks, counts as 0.

    Its cost is per slice of events, not per event: those between the first and the last one count
    as spread evenly in time.
    """

    clock: Callable[[], float] = time.time
    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCIES) + 1))
    seconds: float = 0.0

    def handled(self, events: int, first: float, last: float) -> None:
        """So many consecutive events are handled now; Unix times of the first and the last one."""
        now = self.clock()
        most, least = max(now - min(first, last), 0.0), max(now - max(first, last), 0.0)
        self.seconds += events * (most + least) / 2
        low, high = bisect_left(LATENCIES, least), bisect_left(LATENCIES, most)
        left = events
        for bucket in range(low, high):
            share = (most - LATENCIES[bucket]) / (most - least)
            older = max(ceil(share * (events - 1)), 1)
            self.counts[bucket] += left - older
            left = older
        self.counts[high] += left
