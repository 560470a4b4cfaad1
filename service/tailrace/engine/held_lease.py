"""A lease that this process holds on a scope: until when the process may deliver and save."""

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.errors import LeaseLost
from tailrace.model.lease import boot_clock


@dataclass(frozen=True, slots=True)
class ScopeReport:
    """What the process that follows a scope says of it. ``lag_seconds``: ``None`` if unknown."""

    state: str
    reason: str
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """What is known of a scope's lease. ``held``: this process has it.

    ``owner`` is empty if nobody follows the scope, and ``None`` if that is not known any more.
    ``reason`` says who follows it, for people. ``outlived``: the lease is gone, but a handler call
    of this process has not ended. ``report``: what the owner, another process, says of the scope.
    """

    owner: str | None
    epoch: int
    held: bool
    reason: str = ""
    outlived: bool = False
    report: ScopeReport | None = None


@dataclass(slots=True, eq=False)
class HeldLease:
    """One term of a lease. ``epoch`` fences; work ends when ``clock`` reaches ``deadline``."""

    scope: str
    epoch: int
    deadline: float
    clock: Callable[[], float] = boot_clock

    @property
    def over(self) -> bool:
        """Whether another process may follow the scope by now."""
        return self.clock() >= self.deadline

    def extend(self, deadline: float) -> None:
        """Moves the deadline after a renewal, unless the lease was given up meanwhile."""
        if self.deadline > 0:
            self.deadline = max(self.deadline, deadline)

    def give_up(self) -> None:
        """Ends the lease for good."""
        self.deadline = 0.0

    def require(self) -> None:
        """Raises :class:`LeaseLost` if the lease is over."""
        if self.over:
            raise LeaseLost(
                f"scope {self.scope!r}: the lease of this process (epoch {self.epoch}) was not "
                "renewed in time: another process may follow the scope now"
            )
