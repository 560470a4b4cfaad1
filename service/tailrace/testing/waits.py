"""Waits of a harness: everything that it waits for happens in the same event loop."""

from collections.abc import Callable

import anyio

_LOOK_SECONDS = 0.005
"""Each look costs CPU that a server on the same machine needs."""
_PATIENCE_LOOKS = 50
"""So often is looked whether a second process goes on, which the locks of one that is paused may
hold up."""


async def patiently(condition: Callable[[], bool]) -> None:
    """Waits for a condition that may never come true."""
    for _ in range(_PATIENCE_LOOKS):
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
