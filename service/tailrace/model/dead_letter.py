"""An event that a handler could not handle, set aside whole."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

How: TypeAlias = Literal["replayed", "discarded"]
"""What became of a letter."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The event's BSON, whose it is, and why it was set aside.

    ``id`` is the digest of the event's token: the same event set aside again for the same handler
    is the same letter. ``key`` orders it, as ``ChangeEvent.key`` does. ``attempts`` is 0 and
    ``error`` empty where the event was never tried: an earlier letter of its key was waiting, and
    order would be lost if the event were handled first.
    """

    scope: str
    handler: str
    id: str
    key: bytes | None
    raw: bytes
    error: str
    attempts: int
    at: datetime

    @property
    def identity(self) -> tuple[str, str, str]:
        """What a store knows it by: scope, handler and id."""
        return self.scope, self.handler, self.id
