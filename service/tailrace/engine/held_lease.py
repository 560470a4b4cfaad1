"""A lease that this process holds on a scope: until when it may hand over and save."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tailrace.errors import LeaseLost

boot_clock: Callable[[], float] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Seconds since the machine was started. It counts while the machine sleeps, and is never set."""


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """What is known of a scope's lease: its owner's name (empty: nobody), and if that is here."""

    owner: str
    epoch: int
    held: bool


@dataclass(slots=True, eq=False)
class HeldLease:
    """One turn at a scope. ``epoch`` fences; by ``clock``, nothing is done from ``deadline`` on."""

    scope: str
    epoch: int
    deadline: float
    clock: Callable[[], float] = boot_clock

    @property
    def over(self) -> bool:
        """Whether another process may have the scope by now."""
        return self.clock() >= self.deadline

    def extend(self, deadline: float) -> None:
        """It was renewed, unless it was given up meanwhile."""
        if self.deadline > 0:
            self.deadline = max(self.deadline, deadline)

    def give_up(self) -> None:
        """It is over, for good."""
        self.deadline = 0.0

    def require(self) -> None:
        """Raises :class:`LeaseLost` once it is over."""
        if self.over:
            raise LeaseLost(
                f"scope {self.scope!r}: the lease of this process (epoch {self.epoch}) was not "
                "renewed in time: another process may follow the scope now"
            )
