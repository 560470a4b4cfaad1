"""How many documents are read per second, by collection."""

from collections import deque

import anyio

_WINDOW_SECONDS = 30.0
_SAMPLE_SECONDS = 1.0


class Rates:
    """Over the last half minute, or what is known of it."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}
        """By collection: a time, and how many documents had been read since the first."""

    def note(self, collection: str, documents: int, begun: float) -> None:
        """So many were read since ``begun``."""
        samples = self._samples.setdefault(collection, deque([(begun, 0)]))
        time, total = samples[-1]
        if len(samples) > 1 and time - samples[-2][0] < _SAMPLE_SECONDS:
            samples.pop()
        samples.append((anyio.current_time(), total + documents))

    def clear(self) -> None:
        """What was is not what will be."""
        self._samples.clear()

    def now(self) -> dict[str, float]:
        """Documents per second by collection."""
        now = anyio.current_time()
        found = {}
        for collection, samples in self._samples.items():
            while len(samples) > 1 and samples[1][0] < now - _WINDOW_SECONDS:
                samples.popleft()
            begun, before = samples[0]
            if now > begun:
                found[collection] = (samples[-1][1] - before) / (now - begun)
        return found
