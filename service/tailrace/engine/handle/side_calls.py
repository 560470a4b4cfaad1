"""Calls of a scope's handlers beside its runs, as replays of dead letters make them.

They end before their handlers are closed: by a change of the scope, or with the process.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from tailrace.errors import CheckpointFenced

_CANCEL_SECONDS = 2.0
"""How long a handler may take to end a call that was cancelled."""


@dataclass(eq=False, slots=True)
class SideCalls:
    """The calls for one watcher of a scope."""

    scope: str
    _open: set[anyio.CancelScope] = field(default_factory=set)
    _ended: bool = False
    _idle: anyio.Event = field(default_factory=anyio.Event)

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Makes a call; raises :class:`CheckpointFenced` if the calls were ended before it, or in
        it."""
        self._require()
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                yield
            finally:
                self._open.discard(scope)
                if not self._open:
                    self._idle.set()
        if scope.cancelled_caught:
            self._require()

    async def end(self, seconds: float) -> None:
        """Begins no call any more, and waits for those that are open; then it cancels them."""
        self._ended = True
        for limit in (seconds, _CANCEL_SECONDS):
            with anyio.move_on_after(limit):
                while self._open:
                    self._idle = anyio.Event()
                    await self._idle.wait()
            for scope in self._open:
                scope.cancel()

    def _require(self) -> None:
        if self._ended:
            message = f"scope {self.scope!r} was restarted, or changed by a reload"
            raise CheckpointFenced(f"{message}: try again")
