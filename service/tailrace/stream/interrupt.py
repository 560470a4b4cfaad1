"""A request to stop: loops check it, and it ends waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio


class Interrupt:
    """Set once. Waits inside :meth:`interrupts` end early; nothing else is cancelled.

    A child is set with its parent, or alone: so a run ends with the process, or by itself.
    """

    def __init__(self) -> None:
        self._set = False
        self._scopes: dict[anyio.CancelScope, float] = {}
        self._children: set[Interrupt] = set()
        self._calls: list[Callable[[], None]] = []

    @property
    def is_set(self) -> bool:
        """Whether a stop was requested."""
        return self._set

    def set(self) -> None:
        """Ends the waits inside :meth:`interrupts`, here and in the children."""
        self._set = True
        for call in tuple(self._calls):
            call()
        for scope, patience in tuple(self._scopes.items()):
            scope.deadline = anyio.current_time() + patience
        for child in tuple(self._children):
            child.set()

    @contextmanager
    def interrupts(self, patience_seconds: float = 0.0) -> Iterator[anyio.CancelScope]:
        """Cancels the block ``patience_seconds`` after this is set; the scope then tells so."""
        with anyio.CancelScope() as scope:
            self._scopes[scope] = patience_seconds
            if self._set:
                scope.deadline = anyio.current_time() + patience_seconds
            try:
                yield scope
            finally:
                del self._scopes[scope]

    @contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """Makes the call at the moment this is set, if that happens in the block or before it."""
        self._calls.append(call)
        try:
            if self._set:
                call()
            yield
        finally:
            self._calls.remove(call)

    @contextmanager
    def child(self) -> Iterator[Interrupt]:
        """A new interrupt that is also set with this one."""
        child = Interrupt()
        self._children.add(child)
        if self._set:
            child.set()
        try:
            yield child
        finally:
            self._children.discard(child)

    async def sleep(self, seconds: float) -> None:
        """Sleeps for this time, or until this is set."""
        with self.interrupts():
            await anyio.sleep(seconds)

    async def wait(self) -> None:
        """Returns as soon as this is set."""
        with self.interrupts():
            await anyio.sleep_forever()
