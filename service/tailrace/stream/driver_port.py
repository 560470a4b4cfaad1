"""What a change stream needs from a driver. The adapters are in :mod:`tailrace.drivers`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bson.timestamp import Timestamp

from tailrace.event.reply import Reply


@dataclass(frozen=True, slots=True)
class CursorRequest:
    """A change stream as commands: ``aggregate`` opens it, each later read sends ``get_more``."""

    database: str
    aggregate: Mapping[str, Any]
    get_more: Mapping[str, Any]
    """Fields beside the cursor's id and collection: batchSize, maxTimeMS, comment."""
    read_preference: str | None = None


@dataclass(frozen=True, slots=True)
class LookUp:
    """A read of at most ``most`` documents, by a filter as BSON, not older than ``since``.

    With a ``uuid`` the documents are those of the collection with this UUID, whatever its name in
    the same database is now.
    """

    database: str
    collection: str
    uuid: bytes | None
    filter: bytes
    most: int
    since: Timestamp | None
    read_preference: str | None = None


AtWork = Callable[[Timestamp | None], None]
"""Called repeatedly, with the server's time, while the server works on a read for longer than the
read would wait for a change."""


class Cursor(Protocol):
    """A cursor on the server that ran the aggregate. It never moves to another server."""

    @property
    def first(self) -> Reply:
        """The aggregate's own reply."""

    @property
    def member(self) -> str:
        """The address of its server, for people; empty if it is not known."""

    async def next_batch(self, await_ms: int | None = None, most: int | None = None) -> Reply:
        """One ``getMore``; raises :class:`tailrace.errors.DriverError`.

        ``await_ms``: how long it waits for a change, and ``most``: how many events it may have, if
        other than the request says. A cancelled
        call loses its reply, so the cursor must not be read again.
        """

    def kill(self) -> None:
        """Frees the server's cursor in the background and ignores errors."""


class Session(Protocol):
    """A server session, which a stream keeps across its resumes."""

    async def open(self, request: CursorRequest, at_work: AtWork) -> Cursor:
        """Selects a server by the read preference and runs the aggregate there, once."""

    async def aclose(self) -> None: ...


class Driver(Protocol):
    """Runs commands. Every failure is a :class:`tailrace.errors.DriverError`."""

    async def start_session(self) -> Session:
        """A session without causal consistency: the reads of a stream depend on no others."""

    async def look_up(self, wanted: LookUp) -> Reply:
        """The documents, majority-committed. If they do not fit into one reply, the reply has a
        cursor id, and that cursor is freed."""


class CommandRunner(Protocol):
    """Runs commands, as every driver does."""

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """Runs one command on the primary and returns the reply as plain Python types.

        Raises :class:`tailrace.errors.CommandFailed` for a reply that is not ``ok`` (the caller
        checks an ``ok`` reply for errors), :class:`tailrace.errors.ConnectionFailed` for no reply.
        """
