"""The last minutes of each scope, kept in memory, for those who open the page after an incident."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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


class History:
    """The newest samples of every scope. ``now`` is the clock, in seconds of Unix time."""

    def __init__(self, now: Callable[[], float], steps: int = STEPS) -> None:
        self._now = now
        self._steps = steps
        self._times: deque[float] = deque(maxlen=steps)
        self._last: dict[str, Sample] = {}
        self._scopes: dict[str, deque[Sample]] = {}

    def note(self, samples: Mapping[str, Sample]) -> None:
        """Adds a step. The scopes are the same in each, or some come later."""
        if not samples:
            return
        self._times.append(self._now())
        for name, sample in samples.items():
            last = self._last.get(name) or Sample("", None, 0, 0)
            self._last[name] = sample
            events, errors = sample.events - last.events, sample.errors - last.errors
            series = self._scopes.setdefault(name, deque(maxlen=self._steps))
            series.append(replace(sample, events=events, errors=errors))

    def document(self) -> dict[str, Any]:
        """JSON types: the time of each step, then one list a quantity for each scope, newest last.

        A scope that came later has shorter lists.
        """
        return {
            "step_seconds": STEP_SECONDS,
            "steps": self._steps,
            "times": [
                datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
                for moment in self._times
            ],
            "scopes": {name: _columns(series) for name, series in self._scopes.items()},
        }


def _columns(series: deque[Sample]) -> dict[str, Any]:
    lags = [each.lag_seconds for each in series]
    return {
        "state": [each.state for each in series],
        "lag_seconds": [None if lag is None else round(lag, 3) for lag in lags],
        "events": [each.events for each in series],
        "errors": [each.errors for each in series],
    }
