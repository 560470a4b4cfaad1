"""A stop as a fact: loops look at it, and waits end by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

import anyio
from anyio import CancelScope


class Interrupt:
    """Set once, for good. Waits inside :meth:`interrupts` end early; nothing else is cancelled.

    A child is set with its parent and forgotten when its block ends: a watcher's life ends with
    the process's stop, or alone.
    """

    def __init__(self) -> None:
        self._set = False
        self._scopes: dict[CancelScope, float] = {}
        self._children: set[Interrupt] = set()

    @property
    def is_set(self) -> bool:
        """Whether it is time to stop."""
        return self._set

    def set(self) -> None:
        """Ends the waits inside :meth:`interrupts`, here and in the children."""
        self._set = True
        for scope, patience in tuple(self._scopes.items()):
            _end(scope, patience)
        for child in tuple(self._children):
            child.set()

    def interrupts(self, patience_seconds: float = 0.0) -> AbstractContextManager[CancelScope]:
        """Cancels what the block awaits once this is set; the scope says whether it did.

        With ``patience_seconds`` the block has so much time to end by itself.
        """
        return _Wait(self._scopes, patience_seconds, over=self._set)

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


class _Wait:
    """A block that can be interrupted. A class, because every read is one: half the cost."""

    __slots__ = ("_over", "_patience", "_scope", "_scopes")

    def __init__(self, scopes: dict[CancelScope, float], patience: float, *, over: bool) -> None:
        self._scopes = scopes
        self._patience = patience
        self._over = over

    def __enter__(self) -> CancelScope:
        scope = self._scope = CancelScope()
        scope.__enter__()
        self._scopes[scope] = self._patience
        if self._over:
            _end(scope, self._patience)
        return scope

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        del self._scopes[self._scope]
        return self._scope.__exit__(kind, error, traceback)


def _end(scope: CancelScope, patience_seconds: float) -> None:
    if patience_seconds:
        scope.deadline = anyio.current_time() + patience_seconds
    else:
        scope.cancel()
