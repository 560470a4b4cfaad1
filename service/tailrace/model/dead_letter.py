"""An event that a handler could not handle."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

How: TypeAlias = Literal["replayed", "discarded"]
"""What became of a letter."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The event's BSON, and why it could not be handled.

    ``id`` is the digest of the event's token. ``attempts`` is 0 and ``error`` empty where the event
    was not tried because an earlier letter of its key was waiting.
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
