"""What happens when: the times of a day, scaled down for a shorter run."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE = 60.0
HOUR = 60 * MINUTE


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """The length of a run and its rate; all times are in seconds."""

    hours: float
    rate: float
    """Changes a second."""
    without: tuple[str, ...] = ()
    """Actions that are left out."""

    @property
    def seconds(self) -> float:
        return self.hours * HOUR

    @property
    def restart_every(self) -> float:
        """Also of elections, which come between two restarts."""
        return min(HOUR / 2, self.seconds / 8)

    @property
    def snapshot_every(self) -> float:
        return 2 * self.restart_every

    @property
    def outage_every(self) -> float:
        return self.restart_every / 3

    @property
    def outage(self) -> float:
        """How long the flapping destination is away."""
        return self.outage_every / 5

    @property
    def warm(self) -> float:
        """From when on nothing should grow."""
        return min(20 * MINUTE, self.seconds / 6)

    @property
    def settling(self) -> float:
        """How long after its start a process may still grow: it goes through an outage."""
        return self.outage_every

    @property
    def sample_every(self) -> float:
        return min(10.0, self.seconds / 60)

    @property
    def documents(self) -> int:
        """How many documents there are in all collections, about."""
        return max(300, int(20 * self.rate))
