"""From which time on the rows of a run may be read, so that no row comes again as it was before.

A run that ended without a save had perhaps read rows as of a time that the next run does not know.
It was not later than the server's time when the next run begins.
"""

from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import TimeUnavailable
from tailrace.snapshot.server import SnapshotServer
from tailrace.stream.server_clock import server_time


@dataclass(slots=True)
class EarliestTime:
    """For one run; ``known`` is false if an earlier run, perhaps elsewhere, has read rows."""

    known: bool = True
    _time: Timestamp | None = None

    async def ask(self, server: SnapshotServer) -> bool:
        """Asks for the time, if it must be known; returns true. Raises ``DriverError``."""
        if not self.known:
            self._time = await server_time(server)
            self.known = True
        return True

    def require(self, time: Timestamp) -> None:
        """Raises :class:`TimeUnavailable` if rows must not be read as of ``time``."""
        if self._time is not None and time < self._time:
            raise TimeUnavailable
