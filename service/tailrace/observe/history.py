"""The last minutes of each scope, kept in the service: whoever opens the page after an incident
sees it.

Bounded: a number of samples a scope, eight bytes for each of their numbers.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

STEP_SECONDS = 5
STEPS = 180
"""15 minutes of samples."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One scope at one moment; ``events`` and ``errors`` are counts since the start."""

    state: str
    lag_seconds: float | None
    events: int
    errors: int


@dataclass(slots=True)
class _Series:
    """Of one scope: for each step its state, lag, and what came in within the step."""

    states: list[str] = field(default_factory=list)
    lags: array[float] = field(default_factory=lambda: array("d"))
    events: array[float] = field(default_factory=lambda: array("d"))
    errors: array[float] = field(default_factory=lambda: array("d"))
    last: Sample | None = None

    def add(self, sample: Sample) -> None:
        self.states.append(sample.state)
        self.lags.append(math.nan if sample.lag_seconds is None else sample.lag_seconds)
        last = self.last or Sample("", None, 0, 0)
        self.events.append(sample.events - last.events)
        self.errors.append(sample.errors - last.errors)
        self.last = sample

    def forget_beyond(self, steps: int) -> None:
        for column in (self.states, self.lags, self.events, self.errors):
            del column[:-steps]

    def document(self) -> dict[str, Any]:
        return {
            "state": list(self.states),
            "lag_seconds": [None if math.isnan(lag) else round(lag, 3) for lag in self.lags],
            "events": [int(count) for count in self.events],
            "errors": [int(count) for count in self.errors],
        }


class History:
    """Takes a sample of every scope at each step, and forgets the oldest.

    ``now`` is the clock, in seconds of Unix time.
    """

    def __init__(self, now: Callable[[], float], steps: int = STEPS) -> None:
        self._now = now
        self._steps = steps
        self._scopes: dict[str, _Series] = {}
        self._times: array[float] = array("d")

    def note(self, samples: Mapping[str, Sample]) -> None:
        """Adds a step. The scopes are the same in each, or some come later."""
        if not samples:
            return
        self._times.append(self._now())
        del self._times[: -self._steps]
        for name, sample in samples.items():
            series = self._scopes.setdefault(name, _Series())
            series.add(sample)
            series.forget_beyond(self._steps)

    def document(self) -> dict[str, Any]:
        """JSON types: the time of each step, then by scope one list a quantity.

        The newest stands last. A scope's lists may be shorter than the times: they begin later.
        """
        return {
            "step_seconds": STEP_SECONDS,
            "steps": self._steps,
            "times": [_iso(moment) for moment in self._times],
            "scopes": {name: series.document() for name, series in self._scopes.items()},
        }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
