"""Documents read per second, by collection."""

from collections import deque

import anyio

_WINDOW_SECONDS = 30.0
_SAMPLE_SECONDS = 1.0


class Rates:
    """Averages over the last half minute, or over a shorter time if no more is known."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}
        """By collection: a time, and how many documents were read since the first sample."""

    def note(self, collection: str, documents: int, begun: float) -> None:
        """Counts documents that were read since ``begun``."""
        samples = self._samples.setdefault(collection, deque([(begun, 0)]))
        time, total = samples[-1]
        if len(samples) > 1 and time - samples[-2][0] < _SAMPLE_SECONDS:
            samples.pop()
        samples.append((anyio.current_time(), total + documents))

    def clear(self) -> None:
        """Drops all samples: the coming rate will be another."""
        self._samples.clear()

    def now(self) -> dict[str, float]:
        """Documents per second by collection."""
        now = anyio.current_time()
        rates = {}
        for collection, samples in self._samples.items():
            while len(samples) > 1 and samples[1][0] < now - _WINDOW_SECONDS:
                samples.popleft()
            begun, before = samples[0]
            if now > begun:
                rates[collection] = (samples[-1][1] - before) / (now - begun)
        return rates
