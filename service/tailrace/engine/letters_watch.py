"""Counts the unresolved dead letters in the store: they outlive the process that adds them."""

import anyio
import structlog

from tailrace.engine.ports import DeadLetterStore
from tailrace.errors import DeadLetterError, describe
from tailrace.observe.metrics import Metrics

SECONDS = 5.0
"""Between two counts of a store that answers at once."""
_PAUSE_RATIO = 50.0
"""A count that takes long is followed by a pause that is so much longer: 2 % of a server's time."""


async def watch_letters(
    letters: DeadLetterStore, metrics: Metrics, seconds: float = SECONDS
) -> None:
    """Tells ``metrics`` each count, until it is cancelled. A failure leaves the last one."""
    failed = False
    while True:
        started = anyio.current_time()
        try:
            metrics.letters_waiting(await letters.count())
            failed = False
        except DeadLetterError as error:
            if not failed:
                log = structlog.get_logger()
                log.warning("dead_letters.count_failed", error=describe(error))
            failed = True
        took = anyio.current_time() - started
        await anyio.sleep(max(seconds, _PAUSE_RATIO * took))
