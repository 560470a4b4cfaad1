"""The last quarter of an hour of each scope, for the curves of the status page."""

import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

SAMPLE_SECONDS = 5.0
_SAMPLES = 180

Reading = tuple[str, int, float | None]
"""A scope, the changes that it has read since the start, and its lag in seconds, if known."""


@dataclass(frozen=True, slots=True)
class _Curve:
    """The samples of one scope, of which the last belongs to the last time."""

    events: "array[int]" = field(default_factory=lambda: array("q"))
    lags: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, events: int, lag: float | None) -> None:
        self.events.append(events)
        self.lags.append(math.nan if lag is None else lag)
        if len(self.events) > _SAMPLES:
            del self.events[0], self.lags[0]


@dataclass(slots=True)
class History:
    """Samples of the scopes that ``read`` returns: 180 of 16 bytes for each."""

    read: Callable[[], Iterable[Reading]]
    now: Callable[[], float] = time.time
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    _curves: dict[str, _Curve] = field(default_factory=dict)

    async def run(self) -> None:
        """Takes a sample every 5 seconds until it is cancelled."""
        while True:
            self.sample()
            await anyio.sleep(SAMPLE_SECONDS)

    def sample(self) -> None:
        """Takes one sample. A scope that is no longer there is forgotten."""
        self._times.append(self.now())
        seen = {}
        for name, events, lag in self.read():
            seen[name] = self._curves.get(name) or _Curve()
            seen[name].add(events, lag)
        self._curves = seen

    def document(self) -> Mapping[str, Any]:
        """In JSON types. A scope that came later has fewer samples: its last is the last time's."""
        return {
            "at": [round(each, 1) for each in self._times],
            "scopes": {
                name: {
                    "events": curve.events.tolist(),
                    "lag_seconds": [
                        None if math.isnan(each) else round(each, 1) for each in curve.lags
                    ],
                }
                for name, curve in self._curves.items()
            },
        }
