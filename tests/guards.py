"""Ends tests that hang. No result of a test may depend on how long something takes."""

from contextlib import AbstractContextManager

import anyio

HANGS_SECONDS = 120
"""What takes so long on any machine hangs."""


def against_hanging() -> AbstractContextManager[anyio.CancelScope]:
    """Raises ``TimeoutError`` in a block that does not end by itself."""
    return anyio.fail_after(HANGS_SECONDS)
