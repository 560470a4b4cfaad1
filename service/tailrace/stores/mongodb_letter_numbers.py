"""Refuses dead letters of earlier owners: each letter takes the next number of its scope.

A unique index gives a number to one document only. An owner that begins takes the next number with
a document of its own, a seal. A letter of an earlier owner then finds its number taken, however
late the server executes the write. That owner gets no other number: the checkpoint's epoch says
that it is fenced.

A transaction could compare with the checkpoint. But one that a killed owner leaves open would block
the next owner's claim for a minute (``transactionLifetimeLimitSeconds``).
"""

from bson.int64 import Int64

from tailrace.errors import DeadLetterError
from tailrace.stores.mongodb_collection import RecordCollection
from tailrace.stores.records import letter_fenced

_NUMBERED = {"number": {"$type": "long"}}
_INDEX = {
    "name": "numbers",
    "key": {"scope": 1, "number": 1},
    "unique": True,
    "partialFilterExpression": _NUMBERED,
}
_ARRIVALS = {"name": "arrivals", "key": {"resolved_at": 1, "sequence": 1}}
"""For pages of the dead letters that wait, in the order of their arrival."""
_ATTEMPTS = 10
"""How often to seal if others, which seal at the same time, take the number first."""

_KEEP_MS = 7 * 86_400_000
"""How long seals are kept: longer than any command is late, or any process is paused."""


class LetterNumbers:
    """The next numbers of the scopes that this process follows; one call of a scope at a time.

    A number is used for one write, whose answer must come before the next number is given out.
    """

    def __init__(self, letters: RecordCollection, checkpoints: RecordCollection) -> None:
        self._letters = letters
        self._checkpoints = checkpoints
        self._next = dict[str, tuple[int, int]]()
        """By scope: the owner's epoch and the number; absent while a write has no answer."""

    async def claim(self, scope: str, epoch: int) -> None:
        """Seals what an earlier owner, or an unanswered command of this one, may still write.

        Raises :class:`tailrace.errors.CheckpointFenced` if a greater epoch claimed the checkpoint.
        """
        await self._letters.create_indexes(_INDEX, _ARRIVALS, where=str(self._letters))
        if self._known(scope, epoch) is None:
            await self._seal(scope, epoch)
        old = {"$lt": ["$sealed_at", {"$subtract": ["$$NOW", _KEEP_MS]}]}
        query = {"_id": {"$gte": _seal(scope, 0)[:-1], "$lt": f"seal:{scope}0"}, "$expr": old}
        await self._letters.delete_all(query, str(self._letters))

    async def take(self, scope: str, epoch: int) -> int:
        """The next number; seals first if the previous one had no answer. Raises as the claim."""
        number = self._known(scope, epoch)
        if number is None:
            number = await self._seal(scope, epoch)
        del self._next[scope]
        return number

    def put_back(self, scope: str, epoch: int, number: int) -> None:
        """Says which number is next, after the answer to a write."""
        self._next[scope] = epoch, number

    def _known(self, scope: str, epoch: int) -> int | None:
        owner, number = self._next.get(scope, (None, None))
        return number if owner == epoch else None

    async def _seal(self, scope: str, epoch: int) -> int:
        """Takes the next number with a document of its own; returns the number after it."""
        where = f"{self._letters}, scope {scope!r}"
        for _ in range(_ATTEMPTS):
            last = await self._last(scope)
            # After that read. If another owner claims the scope only now, it seals after this seal.
            claimed = await self._claimed(scope)
            if claimed > epoch:
                raise letter_fenced(scope, epoch, claimed, where=str(self._letters))
            number = last + 1
            update = {
                # An upsert that never matches is an insert.
                "q": {"_id": _seal(scope, number), "number": {"$exists": False}},
                "u": {
                    "$setOnInsert": {"scope": scope, "number": Int64(number), "epoch": epoch},
                    "$currentDate": {"sealed_at": True},
                },
                "upsert": True,
            }
            if await self._letters.update(update, where) is not None:
                self.put_back(scope, epoch, number + 1)
                return number + 1
        raise DeadLetterError(f"{where}: {_ATTEMPTS} writes met others of the same number")

    async def _claimed(self, scope: str) -> int:
        """The epoch of the scope's checkpoint; 0 if there is none, or none that can be read."""
        where = f"{self._checkpoints}, scope {scope!r}"
        query, fields = {"_id": scope}, ("epoch",)
        found = await self._checkpoints.find(query, where, level="linearizable", fields=fields)
        epoch = found[0].get("epoch") if found else 0
        return epoch if isinstance(epoch, int) else 0

    async def _last(self, scope: str) -> int:
        """The greatest number of the scope; 0 if there is none."""
        latest = await self._letters.aggregate(
            {"$match": {"scope": scope, **_NUMBERED}},
            {"$sort": {"number": -1}},
            {"$limit": 1},
            {"$project": {"number": 1}},
            where=f"{self._letters}, scope {scope!r}",
            limit=1,
        )
        return int(latest[0]["number"]) if latest else 0


def _seal(scope: str, number: int) -> str:
    """The ``_id`` of a seal. No ``_id`` of a dead letter begins like that: no scope has a colon."""
    return f"seal:{scope}/{number}"
