"""Counts the unresolved dead letters in the store.

The process's own counts are not enough: letters outlive a process, and the command line resolves
them.
"""

from __future__ import annotations

import anyio
import structlog

from tailrace.engine.ports import DeadLetterStore
from tailrace.errors import DeadLetterError, describe
from tailrace.observe.metrics import Metrics

SECONDS = 5.0
"""Between two counts of a store that answers at once."""
_PAUSE_RATIO = 50.0
"""A count that takes long is followed by a pause that is so much longer: 2 % of a server's time."""


class LettersWatch:
    """One task of a process, which tells ``metrics`` each count. ``seconds``: between two."""

    def __init__(
        self, letters: DeadLetterStore, metrics: Metrics, *, seconds: float = SECONDS
    ) -> None:
        self._letters = letters
        self._metrics = metrics
        self._seconds = seconds
        self._failed = False
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Counts until it is cancelled. Where the store fails, the last count stands."""
        while True:
            started = anyio.current_time()
            try:
                self._metrics.letters_waiting(await self._letters.count())
                self._failed = False
            except DeadLetterError as error:
                if not self._failed:
                    self._log.warning("dead_letters.count_failed", error=describe(error))
                self._failed = True
            took = anyio.current_time() - started
            await anyio.sleep(max(self._seconds, _PAUSE_RATIO * took))
