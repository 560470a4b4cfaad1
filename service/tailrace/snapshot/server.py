"""What a snapshot asks of the server. The adapters are in :mod:`tailrace.drivers`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bson.timestamp import Timestamp

from tailrace.event.reply import Reply
from tailrace.stream import CommandRunner


@dataclass(frozen=True, slots=True)
class Find:
    """One read of documents, as of ``time``. ``uuid`` identifies the collection.

    ``command`` has the other fields of ``find``, such as filter, sort and limit. After
    ``most_bytes`` (0: no limit) no further reply is requested; the last reply then has a cursor id.
    """

    database: str
    collection: str
    uuid: bytes
    time: Timestamp
    command: Mapping[str, Any]
    read_preference: str | None = None
    most_bytes: int = 0


class SnapshotServer(CommandRunner, Protocol):
    """The port to the server. Every failure is a :class:`tailrace.errors.DriverError`."""

    async def first_batch(self, database: str, command: Mapping[str, Any]) -> Reply:
        """Runs one command on the primary and returns the first documents of its cursor."""

    async def find(self, find: Find) -> Sequence[Reply]:
        """The documents, in one or more replies, all read as of the find's time.

        The error has the code ``CollectionUUIDMismatch`` if the name and the UUID belong to
        different collections. Raises :class:`tailrace.errors.ScopeHalted` if the server cannot
        read as of a time.
        """
