"""Destinations of the demo: each module starts a server, and reads what the service stored there.

Modules and clients are imported when they are used: each needs an extra.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module

from tailrace.demo.destinations.target import Target
from tailrace.demo.workspace import Layout
from tailrace.errors import ConfigurationError, Problem

__all__ = ["NAMES", "Target", "opened_target"]

NAMES = ("postgresql", "mongodb", "kafka", "nats", "redis", "http")

_Open = Callable[[Layout, str], AbstractAsyncContextManager[Target]]


@asynccontextmanager
async def opened_target(name: str, layout: Layout, database: str) -> AsyncIterator[Target]:
    """Runs the server of a type while the block lasts; ``database`` is that of the source.

    Raises :class:`ConfigurationError` for what is not installed.
    """
    try:
        opened: _Open = import_module(f"{__name__}.{name}").opened
    except ModuleNotFoundError as error:
        message = (
            f"the demo to {name} needs the extra: pip install '.[demo]' in a checkout ({error})"
        )
        raise ConfigurationError(Problem("--to", message)) from error
    async with opened(layout, database) as target:
        yield target
