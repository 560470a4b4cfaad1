"""Says in the log that something takes long, while it still runs."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog


@contextmanager
def reported_after(seconds: float, event: str, **fields: Any) -> Iterator[None]:
    """Logs a warning ``event`` if the block runs for longer than ``seconds``; cancels nothing."""
    log = structlog.get_logger()
    timer = asyncio.get_running_loop().call_later(
        seconds, lambda: log.warning(event, seconds=seconds, **fields)
    )
    try:
        yield
    finally:
        timer.cancel()
