"""Notices that the store answers too slowly for the leases, and says so once."""

from dataclasses import dataclass
from math import ceil, inf

import structlog

from tailrace.replicas.times import LeaseTimes


@dataclass(eq=False)
class AnswerTime:
    """How long the store takes to answer the process with this member name."""

    member: str
    times: LeaseTimes
    _seconds: float = 0.0
    """The slowest of the answers that were too slow; 0 if none was, for a while."""
    _in_a_row: int = 0
    _noticed_at: float = -inf

    def measured(self, seconds: float, now: float) -> None:
        """Notes an answer that came ``now``. A single slow one may be a pause of this process."""
        if seconds <= self.times.answer:
            self._in_a_row = 0
            if now - self._noticed_at > self.times.stable:
                self._seconds = 0.0
            return
        self._in_a_row += 1
        if self._in_a_row == 1:
            return
        before, self._seconds = self._seconds, max(seconds, self._seconds)
        self._noticed_at = now
        if not before:
            log = structlog.get_logger().bind(member=self.member)
            log.warning("lease.store_slow", seconds=round(seconds, 1), error=self.trouble)

    @property
    def trouble(self) -> str:
        """Why leases are lost, and what to do; empty if the store is fast enough."""
        if not self._seconds:
            return ""
        return (
            f"the store answers after {self._seconds:.1f} s, but must answer within "
            f"{self.times.answer:g} s (0.3 * lease_seconds): leases expire although their owners "
            "run. Make the store faster, or set replicas.lease_seconds to at least "
            f"{ceil(self._seconds / self.times.answer * self.times.lease)}"
        )
