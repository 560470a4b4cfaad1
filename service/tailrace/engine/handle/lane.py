"""The interface of the lanes of a handler, which a run feeds and closes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.watermark import Place
from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken

EVERYTHING = float("inf")
"""Closes a lane once all that was fed is handled."""

Unhandled = Mapping[int, Collection[ResumeToken] | None]
"""By the number of a place that is opened and not finished: the tokens of its unhandled events;
``None`` for all."""


class Lane(Protocol):
    """How one handler of a run gets its events; places that it finishes move the watermark."""

    @property
    def before(self) -> HandledBefore | None:
        """Takes out events that the handler has had before, as long as there may be some."""

    @property
    def opened(self) -> int:
        """The number of the last place whose events may have met the handler; -1 for none."""

    @property
    def backlog(self) -> int:
        """Places that were fed and are not opened yet."""

    def unhandled(self) -> Unhandled:
        """What it has begun and not finished."""

    def feed(self, places: list[Place]) -> None:
        """Appends places, without waiting."""

    def flush(self) -> None:
        """Nothing more can come before what is here is handled: wait for no more."""

    def close(self, upto: float = EVERYTHING) -> None:
        """No more comes: finish what was fed, or only the places up to that number."""

    async def run(self) -> None:
        """Handles until closed. Raises what the delivery raised, after what runs has finished."""


def tokens(events: Iterable[ChangeEvent]) -> set[ResumeToken]:
    """Those of the events, as far as they can be read."""
    found = set()
    for event in events:
        with suppress(KeyError, ValueError):
            found.add(event.token)
    return found
