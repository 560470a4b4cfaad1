"""The intervals of the lease protocol, all derived from the duration of a lease."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """``lease`` is how long a lease lasts. All values are in seconds."""

    lease: float = 10.0

    @property
    def renew(self) -> float:
        """The time between two renewals."""
        return self.lease * 0.3

    @property
    def answer(self) -> float:
        """How long the store may take to answer. With a renewal that is sent after :attr:`renew`
        and answered in this time, a fifth of the lease is left until :attr:`own` is over."""
        return self.lease * 0.3

    @property
    def own(self) -> float:
        """The process stops by itself this long after it sent its last successful renewal."""
        return self.lease * 0.8

    @property
    def poll(self) -> float:
        """The time between two reads of all leases: short also for a long lease, since a clean stop
        hands over by a read."""
        return min(self.lease * 0.1, 1.0)

    @property
    def patience(self) -> float:
        """How long a free lease is reserved for the preferred member."""
        return self.poll * 2.5

    @property
    def stable(self) -> float:
        """How long no member may have joined or left before a scope is requested for balance."""
        return self.lease * 2
