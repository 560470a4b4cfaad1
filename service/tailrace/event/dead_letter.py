"""An event that a handler could not handle, set aside whole."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime

from tailrace.event.change_event import ChangeEvent


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The event's BSON, whose it is, and why it lies here.

    ``attempts`` is 0 where the event was never tried: it came behind an earlier letter of its
    key, and order would be lost if it were handled first. ``error`` is empty then.
    """

    scope: str
    handler: str
    raw: bytes
    error: str
    attempts: int
    at: datetime

    @property
    def event(self) -> ChangeEvent:
        """The event itself."""
        return ChangeEvent.from_raw(self.raw)

    @property
    def id(self) -> str:
        """Names the letter for its handler: the same event set aside again is the same letter."""
        return self.event.token.digest

    @property
    def key(self) -> Hashable | None:
        """What orders it: see :attr:`ChangeEvent.key`."""
        return self.event.key
