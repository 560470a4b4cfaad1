"""Actions on a scope where no daemon runs: what they change is stored.

The process that follows the scope applies it then, or the next one. What is here has the names of
:class:`~tailrace.control.control.Control` and of what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bson.timestamp import Timestamp

from tailrace.control.desired_state import StoredState, store_desired_state, subject_text
from tailrace.model import Position

if TYPE_CHECKING:
    from tailrace.control.server_positions import ServerPositions
    from tailrace.engine.ports import CheckpointStore, DesiredStateStore

_STORED = "no daemon runs here: stored; applies when a process follows the scope"


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
    """A change that was stored."""

    subject: OfflineSubject
    stored: StoredState
    done = False

    @property
    def progress(self) -> Mapping[str, Any]:
        """Nothing is known of it."""
        return {"state": None}

    def told(self, word: str, effect: str = "") -> str:
        """What became of it; ``word``: what the subject is when it has its ``effect``."""
        if effect:
            return f"{self.subject}: {effect}. {_STORED[0].upper()}{_STORED[1:]}"
        if self.stored.repeated:
            again = "is paused already" if word == "paused" else "was not paused"
            return f"{self.subject} {again}"
        return f"{self.subject}{f' is {word}' if word != 'moved' else ''}: {_STORED}"


@dataclass(frozen=True, slots=True)
class OfflineControl:
    """The store and one scope of a configuration, with its ``handlers`` and its ``server``."""

    checkpoints: CheckpointStore
    desired_states: DesiredStateStore
    handlers: Sequence[str]
    server: Callable[[], AbstractAsyncContextManager[ServerPositions]]

    def subject(self, scope: str, handler: str | None = None) -> OfflineSubject:
        """The scope, or its handler."""
        return OfflineSubject(scope, handler, self.handlers if handler is None else [handler])

    def positions(self, _: OfflineSubject) -> AbstractAsyncContextManager[ServerPositions]:
        """Those of the scope on its server."""
        return self.server()

    async def apply(
        self,
        subject: OfflineSubject,
        by: str,
        changes: Mapping[str, Any],
        _wait: float | None,
        *,
        is_applied: Callable[[str], bool] | None = None,
        restarts: bool = False,
    ) -> OfflineOutcome:
        """Stores a change. Raises :class:`ActionRefused`."""
        handler, states = subject.handler, self.desired_states
        stored = await store_desired_state(states, subject.scope, by, changes, handler)
        return OfflineOutcome(subject, stored)
