"""Opens what a user's class holds, such as a pool of connections, and closes it at the end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import structlog

from tailrace.errors import ConfigurationError, Problem, describe

CLOSING_SECONDS = 5.0
"""How long ``__aexit__`` may take. Everything that was handled is saved by then."""


@asynccontextmanager
async def opened(name: str, target: Any) -> AsyncIterator[Any]:
    """The object, entered if it is an async context manager, and left when the block ends.

    Raises :class:`ConfigurationError` if it cannot be entered. An error of ``__aexit__`` is logged:
    it cannot undo what was handled.
    """
    if not hasattr(target, "__aenter__"):
        yield target
        return
    try:
        usable = await target.__aenter__()
    except Exception as error:
        told = f"{type(target).__name__} cannot be opened: {describe(error)}"
        raise ConfigurationError(Problem(f"handlers.{name}", told)) from error
    try:
        yield target if usable is None else usable
    finally:
        await _close(name, target)


async def _close(name: str, target: Any) -> None:
    try:
        with anyio.CancelScope(shield=True), anyio.fail_after(CLOSING_SECONDS):
            await target.__aexit__(None, None, None)
    except Exception as error:  # noqa: BLE001 - whatever it is, the others must close too
        log = structlog.get_logger()
        log.error("handler.close_failed", handler=name, error=describe(error))
