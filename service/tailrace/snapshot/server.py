"""What a snapshot asks of the server. The adapters are in :mod:`tailrace.drivers`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bson.timestamp import Timestamp

from tailrace.event.found import Found


@dataclass(frozen=True, slots=True)
class Find:
    """One read of documents of one collection, which is known by its ``uuid``, as of ``time``.

    ``command`` has the fields of ``find`` beside these: filter, sort, limit. Behind ``most_bytes``
    (0: no bound) nothing more is asked for; the last reply then still has its cursor's id.
    """

    database: str
    collection: str
    uuid: bytes
    time: Timestamp
    command: Mapping[str, Any]
    read_preference: str | None = None
    most_bytes: int = 0


class SnapshotServer(Protocol):
    """Every failure is a :class:`tailrace.errors.DriverError`."""

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """Runs one command on the primary and returns the reply as plain Python types."""

    async def find(self, find: Find) -> Sequence[Found]:
        """The documents, in as many replies as they take, all read as of the find's time.

        Where the name is not that of the collection with that UUID, the error has the code
        ``CollectionUUIDMismatch``. Raises :class:`tailrace.errors.ScopeHalted` for a server that
        cannot read as of a time.
        """
