"""Calls a transform as a handler does."""

from collections.abc import Callable, Sequence
from typing import Any

from tailrace.event import ChangeEvent
from tailrace.handlers.transforms import Transform


async def transformed(
    function: Callable[..., Any], events: Sequence[ChangeEvent]
) -> list[ChangeEvent | None]:
    """What a handler with this ``transform`` gets of events, at the same indices.

    ``None``: it does not get this one. Raises what the function raises, ``ValueError`` if it cannot
    be a transform, and :class:`tailrace.PermanentError` if it does not return documents.
    """
    name = getattr(function, "__qualname__", repr(function))
    return await Transform.of_function(name, function).of(events)
