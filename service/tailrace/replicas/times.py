"""The times of the lease protocol, which all follow from how long a lease lasts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """All in seconds."""

    lease: float = 10.0

    @property
    def renew(self) -> float:
        """Between two renewals."""
        return self.lease * 0.3

    @property
    def own(self) -> float:
        """From the moment when a renewal was sent: the process stops by itself then."""
        return self.lease * 0.8

    @property
    def poll(self) -> float:
        """Between two looks at all leases."""
        return self.lease * 0.1

    @property
    def patience(self) -> float:
        """How long a free lease is left to the member that is preferred."""
        return self.lease * 0.25

    @property
    def stable(self) -> float:
        """How long nobody may have joined or left before a scope is handed over for balance."""
        return self.lease * 2
