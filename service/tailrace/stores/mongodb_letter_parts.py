"""The events of dead letters that are too large for one document, in parts.

``_id`` of a part is ``part:<scope>/<random>/<number>``. The parts are written before their letter,
which names them, so that the letter appears at once, with its last write. Nothing changes a part
until its letter is resolved; then it gets the same ``resolved_at``. A letter that was never written
leaves parts behind: the scope's next claim resolves them.
"""

from datetime import datetime
from secrets import token_hex

from tailrace.stores.mongodb_collection import RecordCollection

PART_BYTES = 4 * 1024 * 1024
"""A larger event is kept in parts of this size. A document has at most 16 MB, which must also hold
the dead letter's key and error."""

WAITING = {"resolved_at": {"$exists": False}}
"""A filter for what is not resolved."""


class LetterParts:
    """The parts in the collection of dead letters. Parts of one letter begin with ``prefix``."""

    def __init__(self, letters: RecordCollection) -> None:
        self._letters = letters

    async def write(self, scope: str, event: bytes, where: str) -> str:
        """Stores an event in new parts; returns their prefix."""
        prefix = f"{_of_scope(scope)}{token_hex(12)}/"
        for number, begin in enumerate(range(0, len(event), PART_BYTES)):
            part = {"bytes": event[begin : begin + PART_BYTES]}
            update = {"q": {"_id": f"{prefix}{number:04}"}, "u": part, "upsert": True}
            await self._letters.update(update, where)
        return prefix

    async def read(self, prefix: str, where: str) -> bytes:
        """The event; fewer bytes if a part is missing."""
        found = await self._letters.find_all(below(prefix), where, level="majority")
        return b"".join(part.get("bytes", b"") for part in found)

    async def waiting(self, scope: str) -> set[str]:
        """The prefixes of the scope's parts that are not resolved."""
        query = below(_of_scope(scope)) | WAITING
        where = f"{self._letters}, scope {scope!r}"
        found = await self._letters.find_all(query, where, level="local", fields=("_id",))
        return {each["_id"].rpartition("/")[0] + "/" for each in found}

    async def resolve(self, prefix: str, at: datetime, where: str) -> None:
        """Marks the parts, as their dead letter is marked."""
        update = {"q": below(prefix), "u": {"$set": {"resolved_at": at}}, "multi": True}
        await self._letters.update(update, where)


def below(prefix: str) -> dict[str, object]:
    """A filter for each ``_id`` with ``prefix``, which ends with "/"; "0" is the next character."""
    return {"_id": {"$gte": prefix, "$lt": f"{prefix[:-1]}0"}}


def _of_scope(scope: str) -> str:
    """No ``_id`` of a dead letter begins like that: no scope has a colon."""
    return f"part:{scope}/"
