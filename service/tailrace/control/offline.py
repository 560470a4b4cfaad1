"""Actions on a scope where no daemon runs: what they order is stored.

The process that follows the scope obeys it then, or the next one. What is here has the names of
:class:`~tailrace.control.control.Control` and of what it returns.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from tailrace.control.orders import Given, give, subject_text
from tailrace.control.server_positions import ServerPositions
from tailrace.engine.ports import CheckpointStore, OrderStore
from tailrace.model import Position

_STORED = "no daemon runs here: stored; the process that follows it obeys now, or when it starts"


@dataclass(frozen=True, slots=True)
class OfflineSubject:
    """A scope with these handlers, or the ``handler`` of it with this name."""

    scope: str
    handler: str | None
    handlers: Sequence[str]
    state = "unknown"

    def __str__(self) -> str:
        return subject_text(self.scope, self.handler)

    def reached(self, handler: str | None) -> tuple[Position, Timestamp | None] | None:
        """Only what is saved is known."""
        return None


@dataclass(frozen=True, slots=True)
class OfflineOutcome:
    """An order that was stored."""

    subject: OfflineSubject
    given: Given
    done = False

    @property
    def progress(self) -> Mapping[str, Any]:
        """Nothing is known of it."""
        return {"state": None}

    def told(self, word: str, effect: str = "") -> str:
        """What became of it; ``word``: what the subject is when it has its ``effect``."""
        if effect:
            return f"{self.subject}: {effect}. {_STORED[0].upper()}{_STORED[1:]}"
        if self.given.repeated:
            again = "is paused already" if word == "paused" else "was not paused"
            return f"{self.subject} {again}"
        return f"{self.subject}{f' is {word}' if word != 'moved' else ''}: {_STORED}"


@dataclass(frozen=True, slots=True)
class OfflineControl:
    """The store and one scope of a configuration, with its ``handlers`` and its ``server``."""

    checkpoints: CheckpointStore
    orders: OrderStore
    handlers: Sequence[str]
    server: Callable[[], AbstractAsyncContextManager[ServerPositions]]

    def subject(self, scope: str, handler: str | None = None) -> OfflineSubject:
        """The scope, or its handler."""
        return OfflineSubject(scope, handler, self.handlers if handler is None else [handler])

    def positions(self, _: OfflineSubject) -> AbstractAsyncContextManager[ServerPositions]:
        """Those of the scope on its server."""
        return self.server()

    async def order(
        self,
        subject: OfflineSubject,
        by: str,
        changes: Mapping[str, Any],
        _wait: float | None,
        *,
        obeyed: Callable[[str], bool] | None = None,
        restarts: bool = False,
    ) -> OfflineOutcome:
        """Gives an order. Raises :class:`ActionRefused`."""
        given = await give(self.orders, subject.scope, by, changes, subject.handler)
        return OfflineOutcome(subject, given)
