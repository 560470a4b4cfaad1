"""A function, or an object with ``write`` or ``__call__``, as a handler."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tailrace.config.handlers import BatchHandlerSettings
from tailrace.engine import Handler, PerBatch
from tailrace.errors import ConfigurationError, Problem, describe
from tailrace.handlers.destination import Destination
from tailrace.handlers.function import function_calls
from tailrace.handlers.handler_type import Opening
from tailrace.handlers.opening import opened


def created(place: str, kind: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """An object of a user's class. Raises :class:`ConfigurationError` with this place."""
    try:
        return kind(*given, **named)
    except Exception as error:
        told = f"{getattr(kind, '__name__', kind)} cannot be created: {describe(error)}"
        raise ConfigurationError(Problem(place, told)) from error


@asynccontextmanager
async def object_handler(
    opening: Opening,
    target: Any,
    settings: BatchHandlerSettings,
    concurrency: int,
    batches: int = 1,
) -> AsyncIterator[Handler]:
    """The object as a handler. One that is an async context manager is entered and left.

    ``concurrency``: how many calls with one event may run at once, and ``batches`` how many with
    several.

    Raises :class:`ConfigurationError` if it cannot be entered.
    """
    bounds: dict[str, Any] = {
        "events": settings.batch_size,
        "bytes": settings.batch_bytes,
        "linger_seconds": settings.linger_seconds,
        "concurrency": batches,
    }
    async with opened(opening.name, target) as usable:
        if hasattr(usable, "write"):
            destination = Destination(opening.name, usable, opening.registry)
            yield Handler(opening.name, destination.calls(**bounds), destination.position)
            return
        batch = partial(PerBatch, **bounds)
        yield Handler(opening.name, function_calls(usable, concurrency=concurrency, batch=batch))
