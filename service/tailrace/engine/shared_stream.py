"""Where the handlers of a scope meet: the shared stream, and those that come back to it.

A handler that reads a stream of its own is attached to the shared one when it has read at least as
far. Its own stream delivers everything up to the token it has reached, the shared one everything
after it. mongod's tokens tell which of two positions is first, whatever stream they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.plan.router import Routed
from tailrace.model import ResumeToken

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 300.0
_FORGET_SECONDS = 600.0

Attach = Callable[[Routed, HandlerRun, ResumeToken], HandlerRun]
"""Feeds a handler with everything after a token, which its former run still reads up to there."""


@dataclass(slots=True)
class _Detached:
    """How often a handler was detached of late, and when it may come back."""

    times: int = 0
    last: float = 0.0
    until: float = 0.0


@dataclass(slots=True, eq=False)
class SharedStream:
    """``read_to``: the token up to which the shared stream has given places; ``None`` while it
    cannot take a handler."""

    read_to: Callable[[], ResumeToken | None] = lambda: None
    attach: Attach | None = None
    withdraw: Callable[[HandlerRun], None] = lambda handler: None
    """Takes back a handler that was attached, and whose former run did not end as expected."""
    _detached: dict[str, _Detached] = field(default_factory=dict)

    def open(
        self,
        read_to: Callable[[], ResumeToken | None],
        attach: Attach,
        withdraw: Callable[[HandlerRun], None],
    ) -> None:
        """A run of the shared stream can take handlers from now on."""
        self.read_to, self.attach, self.withdraw = read_to, attach, withdraw

    def close(self) -> None:
        """The run ends."""
        self.read_to, self.attach = lambda: None, None

    def left(self, handler: str) -> None:
        """A handler was detached: the more often, the longer it stays on a stream of its own."""
        now = anyio.current_time()
        known = self._detached.setdefault(handler, _Detached())
        if now - known.last > _FORGET_SECONDS:
            known.times = 0
        known.last = now
        known.until = now + min(_FIRST_SECONDS * 2**known.times, _LONGEST_SECONDS)
        known.times += 1

    def back_at(self, handler: str) -> float:
        """From when on the handler may come back, by the event loop's clock."""
        known = self._detached.get(handler)
        return known.until if known is not None else 0.0

    def can_attach(self, handler: str, token: ResumeToken | None) -> bool:
        """Whether the handler can be attached at the token that its own stream has reached."""
        shared = self.read_to()
        if token is None or shared is None or self.attach is None:
            return False
        if anyio.current_time() < self.back_at(handler):
            return False
        return shared.is_at(token) or shared.precedes(token)
