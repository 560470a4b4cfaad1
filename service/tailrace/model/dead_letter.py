"""An event that a handler could not handle."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

How: TypeAlias = Literal["replayed", "discarded"]
"""How a letter was resolved."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The event's BSON, and why it could not be handled.

    ``id`` is the digest of the event's token. If an earlier letter of the event's key was waiting,
    the event was not tried: then ``attempts`` is 0 and ``error`` is empty.
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
        """The key of a letter in a store: scope, handler and id."""
        return self.scope, self.handler, self.id
