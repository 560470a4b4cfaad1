"""What the lanes of a handler have in common: a run feeds them, closes them, and waits."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.router import Wants
from tailrace.engine.handle.workers import Workers
from tailrace.engine.position.position import HandledBefore
from tailrace.engine.position.watermark import Place, Watermark
from tailrace.errors import DeliveryInterrupted
from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken

EVERYTHING = float("inf")
"""Closes a lane once all that was fed is handled."""

Unhandled = Mapping[int, Collection[ResumeToken] | None]
"""By the number of a place that is opened and not finished: the tokens of its unhandled events;
``None`` for all."""


@dataclass(eq=False)
class Lane(ABC):
    """How one handler of a run gets its events: those it ``wants``, and does not have ``before``.

    It finishes places on the ``watermark``.
    """

    delivery: Delivery
    wants: Wants | None
    watermark: Watermark
    before: HandledBefore | None = None
    opened: int = -1
    """The number of the last place whose events may have met the handler; -1 for none."""
    _queue: deque[Place] = field(default_factory=deque)
    _closed: bool = False
    _upto: float = EVERYTHING
    _failure: Exception | None = None
    _workers: Workers[Any] = field(init=False)

    @property
    def backlog(self) -> int:
        """Places that were fed and are not opened yet."""
        return len(self._queue)

    @abstractmethod
    def unhandled(self) -> Unhandled:
        """What it has begun and not finished."""

    @abstractmethod
    def feed(self, places: list[Place]) -> None:
        """Appends places, without waiting."""

    def flush(self) -> None:
        """Nothing more can come before what is here is handled: wait for no more."""
        self._wake_all()

    def close(self, upto: float = EVERYTHING) -> None:
        """No more comes: finish what was fed, or only the places up to that number."""
        self._closed, self._upto = True, upto
        self._wake_all()

    async def run(self) -> None:
        """Handles until closed. Raises what the delivery raised, after what runs has finished."""
        await self._workers.run()
        if self._failure is not None and not isinstance(self._failure, DeliveryInterrupted):
            raise self._failure

    @abstractmethod
    def _wake_all(self) -> None: ...

    def _fail(self, error: Exception) -> None:
        """The first failure counts: nothing more is begun, and what runs may finish."""
        self._failure = self._failure or error
        self._wake_all()

    @property
    def _waiting(self) -> bool:
        """Whether places wait to be opened."""
        return bool(self._queue) and self._queue[0].number <= self._upto

    def _without_handled(self, events: list[ChangeEvent]) -> list[ChangeEvent]:
        """The events that the handler does not have already."""
        if self.before is not None:
            events = self.before.of(events)
            if self.before.over:
                self.before = None
        return events


def tokens(events: Iterable[ChangeEvent]) -> set[ResumeToken]:
    """Those of the events, as far as they can be read."""
    found = set()
    for event in events:
        with suppress(KeyError, ValueError):
            found.add(event.token)
    return found
