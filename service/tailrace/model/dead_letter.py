"""An event that a handler could not handle."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from tailrace.errors import DeadLetterError


class LetterUnreadable(DeadLetterError):
    """The record of a dead letter is damaged: that concerns only this letter."""


How: TypeAlias = Literal["replayed", "discarded"]
"""How a dead letter was resolved."""


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
        """The key of a dead letter in a store: scope, handler and id."""
        return self.scope, self.handler, self.id


@dataclass(frozen=True, slots=True)
class LetterHead:
    """A dead letter without its event, which may be large.

    ``arrival`` says where it stands among all of its store: later ones are greater.
    ``unreadable``: why its record cannot be read; its other fields are then as far as they can be.
    """

    scope: str
    handler: str
    id: str
    key: bytes | None
    error: str
    attempts: int
    at: datetime
    arrival: str
    unreadable: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """As of the dead letter."""
        return self.scope, self.handler, self.id

    @property
    def queue(self) -> "LetterQueue":
        """The dead letters that are replayed in order, of which this is one."""
        return self.scope, self.handler, self.key


@dataclass(frozen=True, slots=True)
class DiscardedLetter:
    """A dead letter that an operator has discarded ``at`` this time. ``error``: why it was one."""

    id: str
    error: str
    at: datetime


LetterQueue: TypeAlias = tuple[str, str, bytes | None]
"""Scope, handler and key of a document: its dead letters are replayed in order."""
