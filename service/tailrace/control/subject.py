"""What a change is about: a scope that is followed here or elsewhere, or one of its handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio
from bson.timestamp import Timestamp

from tailrace.control.desired_state import subject_text
from tailrace.control.outcome import ActionRefused
from tailrace.engine import Watcher, WatcherState
from tailrace.engine.status.status import Status
from tailrace.model import Position

_STILL = {WatcherState.HALTED, WatcherState.STANDBY, WatcherState.STOPPED}
"""The states in which no run here can apply anything."""
_LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Subject:
    """A scope with its watcher, or the ``handler`` of it with this name."""

    watcher: Watcher
    handler: str | None = None

    def __post_init__(self) -> None:
        names = [each.name for each in self.watcher.plan.routed]
        if self.handler is not None and self.handler not in names:
            has = f"it has: {', '.join(names)}" if names else "it has none"
            message = f"scope {self.watcher.name!r} has no handler {self.handler!a:.60}; {has}"
            raise ActionRefused(404, message)

    def __str__(self) -> str:
        return subject_text(self.watcher.name, self.handler)

    @property
    def handlers(self) -> Sequence[str]:
        """The names of the handlers that are meant; one without a name in a scope without any."""
        if self.handler is not None:
            return [self.handler]
        return [each.name for each in self.watcher.plan.routed] or [""]

    @property
    def status(self) -> Status:
        """That of the scope, or of the course in which the handler is."""
        if self.handler is None:
            return self.watcher.status
        return self.watcher.status_of(self.handler)

    @property
    def state(self) -> str:
        """What it does."""
        return self.status.state.value

    def reached(self, handler: str | None) -> tuple[Position, Timestamp | None] | None:
        """See :meth:`tailrace.engine.status.status.Status.reached`."""
        status = self.watcher.status_of(handler) if handler else self.watcher.status
        return status.reached(handler)

    @property
    def is_halted(self) -> bool:
        """Whether it needs an operator."""
        return self.status.state is WatcherState.HALTED

    def is_paused(self, handler: str) -> bool:
        """Whether an operator has paused this handler."""
        return self.watcher.status_of(handler).state is WatcherState.PAUSED

    def has_begun(self, handler: str) -> bool:
        """Whether a start of this handler is over."""
        return self.watcher.status_of(handler).state is not WatcherState.STARTING

    async def until(self, is_applied: Callable[[str], bool], seconds: float) -> Effect:
        """Waits for a while until a change ``is_applied`` to every handler that is meant."""
        effect = self._effect(is_applied)
        with anyio.move_on_after(seconds):
            while effect.may_come:
                await anyio.sleep(_LOOK_SECONDS)
                effect = self._effect(is_applied)
        return self._effect(is_applied)

    def _effect(self, is_applied: Callable[[str], bool]) -> Effect:
        late = [
            name for name in self.handlers if not (is_applied(name) and not self._is_idle(name))
        ]
        for name in late:
            if (status := self.watcher.status_of(name)).state not in _STILL:
                return Effect(status, self._waits(name, status), may_come=True)
        if late:
            status = self.watcher.status_of(late[0])
            return Effect(status, self._waits(late[0], status))
        return Effect(self.status)

    def _is_idle(self, handler: str) -> bool:
        """Whether no run here applies anything to this handler."""
        state = self.watcher.status_of(handler).state
        return state in (WatcherState.STANDBY, WatcherState.HALTED)

    def _waits(self, handler: str, status: Status) -> str:
        """What is not changed yet, for people."""
        return f"handler {handler!r}" if status is not self.status else "it"


@dataclass(frozen=True, slots=True)
class Effect:
    """Whether a change has its effect: if not, ``who`` in which ``status`` has not applied it, and
    whether it ``may_come``."""

    status: Status
    who: str = ""
    may_come: bool = False

    @property
    def done(self) -> bool:
        """Whether it is applied everywhere."""
        return not self.who
