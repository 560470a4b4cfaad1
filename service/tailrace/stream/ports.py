"""What a change stream asks of a driver: to run an aggregate, and to read its cursor.

Both adapters stand in :mod:`tailrace.drivers`; the rest of the service knows these classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bson.timestamp import Timestamp

from tailrace.event.reply import Reply


@dataclass(frozen=True, slots=True)
class Request:
    """A change stream as commands: what opens it, and what each later read repeats."""

    database: str
    aggregate: Mapping[str, Any]
    get_more: Mapping[str, Any]
    """Fields beside the cursor's id and collection: batchSize, maxTimeMS, comment."""
    read_preference: str | None = None


AtWork = Callable[[Timestamp | None], None]
"""Told, again and again, of a read that lasts beyond the time that it would wait for a change: the
server says on another connection that it is at work on it, and what time it is there."""


class Cursor(Protocol):
    """A cursor of the server that ran the aggregate. It never moves to another server."""

    @property
    def first(self) -> Reply:
        """The aggregate's own reply."""

    async def next_batch(self) -> Reply:
        """One ``getMore``.

        Raises :class:`tailrace.errors.DriverError`, :class:`tailrace.errors.ServerUnsuitable` among
        them. A call that is cancelled has lost its reply: the cursor must not be read again.
        """

    def kill(self) -> None:
        """Frees the server's cursor in the background: its errors are nobody's, none waits."""


class Session(Protocol):
    """A server session, which a stream keeps over its resumes."""

    async def open(self, request: Request, at_work: AtWork) -> Cursor:
        """Selects a server by the read preference and runs the aggregate there, once.

        ``at_work`` is told of this cursor's reads; it must neither block nor raise.
        """

    async def aclose(self) -> None:
        """Gives it back to the driver's pool."""


class Driver(Protocol):
    """Runs commands. Every failure is a :class:`tailrace.errors.DriverError`."""

    async def start_session(self) -> Session:
        """A session without causal consistency: a stream's reads depend on no other's."""
