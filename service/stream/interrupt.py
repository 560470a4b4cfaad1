"""A stop as a fact: loops look at it, and waits end by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio


class Interrupt:
    """Set once, for good. Waits inside :meth:`interrupts` end early; nothing else is cancelled.

    A child is set with its parent and forgotten when its block ends: a watcher's life ends with
    the process's stop, or alone.
    """

    def __init__(self) -> None:
        self._set = False
        self._scopes: set[anyio.CancelScope] = set()
        self._children: set[Interrupt] = set()

    @property
    def is_set(self) -> bool:
        """Whether it is time to stop."""
        return self._set

    def set(self) -> None:
        """Ends the waits inside :meth:`interrupts`, here and in the children."""
        self._set = True
        for scope in tuple(self._scopes):
            scope.cancel()
        for child in tuple(self._children):
            child.set()

    @contextmanager
    def interrupts(self) -> Iterator[anyio.CancelScope]:
        """Cancels what the block awaits once this is set; the scope says whether it did."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                if self._set:
                    scope.cancel()
                yield scope
            finally:
                self._scopes.discard(scope)

    @contextmanager
    def child(self) -> Iterator[Interrupt]:
        """An interrupt of its own, set with this one."""
        child = Interrupt()
        self._children.add(child)
        if self._set:
            child.set()
        try:
            yield child
        finally:
            self._children.discard(child)

    async def sleep(self, seconds: float) -> None:
        """Sleeps, at the longest until this is set."""
        with self.interrupts():
            await anyio.sleep(seconds)

    async def wait(self) -> None:
        """Returns once this is set."""
        with self.interrupts():
            await anyio.sleep_forever()
