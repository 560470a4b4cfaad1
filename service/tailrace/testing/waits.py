"""Waits of a harness: everything that it waits for happens in the same event loop."""

from collections.abc import Callable

import anyio

_LOOK_SECONDS = 0.001
_PATIENCE_TURNS = 250
"""So many milliseconds, or turns of a busy event loop, a second process may be held up by the locks
of one that is paused."""


async def patiently(condition: Callable[[], bool]) -> None:
    """Waits for a condition that may never come true."""
    for _ in range(_PATIENCE_TURNS):
        if condition():
            return
        await anyio.sleep(_LOOK_SECONDS)


async def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits for a condition; returns whether it came true in time."""
    with anyio.move_on_after(seconds):
        while not condition():  # noqa: ASYNC110 - many things may make it true
            await anyio.sleep(_LOOK_SECONDS)
        return True
    return False
