"""Dead letters in a collection of a replica set: one document a letter.

The event lies in it as the very bytes that came. A letter that was resolved stays, with ``how``
and ``resolved_at``, as the record of what was set aside; a TTL index limits that::

    db.dead_letters.createIndex({resolved_at: 1}, {expireAfterSeconds: 2592000})

Letters are in the order of ``sequence``, a timestamp of the server's logical clock, which gives
none twice and never goes back: so the order also holds across owners of a scope.

An event above some 15.9 MB (joined from fragments) does not fit; SQLite has no such limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from anyio import Lock

from tailrace.model import record_fields
from tailrace.model.dead_letter import DeadLetter, How
from tailrace.stores.key_index import KeyIndex
from tailrace.stores.mongodb_codec import below, from_document, key_prefix, letter_id, to_document
from tailrace.stores.mongodb_collection import RecordCollection
from tailrace.stores.records import unreadable_letter

_MOST_GROUPS = 100_000
"""In one reply: more than there are pairs of scope and handler."""

_WAITING = {"resolved_at": {"$exists": False}}
_LETTERS = {"letter": {"$exists": True}} | _WAITING  # and not others' documents


class MongoDeadLetters:
    """A :class:`tailrace.engine.ports.DeadLetterStore` in a collection.

    A letter that could not be added may have been stored all the same (its acknowledgement was
    lost): adding it again stores it once. Until then its key counts as held.
    """

    def __init__(self, records: RecordCollection) -> None:
        self._records = records
        self._held = KeyIndex()
        # One command at a time: what is known here must not be overtaken by an older answer.
        self._lock = Lock()

    async def add(self, letter: DeadLetter) -> None:
        """Stores it behind all others, once; in the journals of a majority when this returns."""
        document, where = to_document(letter), self._where(letter)
        query = {"_id": document.pop("_id")}
        async with self._lock:
            # Before it is stored: a cancelled call must not leave a letter with a key let go.
            self._held.note(letter.scope, letter.handler, letter.key, held=True)
            update = {
                "q": query | {"resolved_at": {"$exists": True}},
                "u": {
                    "$set": document,
                    "$unset": {"resolved_at": "", "how": ""},
                    "$currentDate": {"sequence": {"$type": "timestamp"}},
                },
                "upsert": True,
            }
            if await self._records.update(update, where) is None:
                # It waits already. A write that changes nothing still waits for a majority to
                # have what it found (LastOpFixer, src/mongo/db/ops).
                unchanged = {"q": query, "u": {"$set": {"letter": letter.id}}}
                await self._records.update(unchanged, where)

    def held(self, scope: str, handler: str) -> Collection[bytes | None]:
        """Keys that have unresolved letters, as last known here."""
        return self._held.keys(scope, handler)

    async def holds(self, scope: str, handler: str, key: bytes | None) -> bool:
        """Whether the key has unresolved letters now, as the primary knows it."""
        query = below(key_prefix(scope, handler, key)) | _WAITING
        async with self._lock:
            found = await self._records.find(query, self._name, level="local", fields=("letter",))
            self._held.note(scope, handler, key, held=bool(found))
            return bool(found)

    async def refresh(self) -> None:
        """Reads which keys are held: another owner of a scope may have added some."""
        fields = ("scope", "handler", "key")
        async with self._lock:
            found = await self._records.find_all(_LETTERS, self._name, level="local", fields=fields)
            self._held.replace([self._key(document) for document in found])

    async def count(self) -> Mapping[tuple[str, str], int]:
        """How many unresolved letters there are by scope and handler, as the primary knows it."""
        group = {"_id": {"scope": "$scope", "handler": "$handler"}, "number": {"$sum": 1}}
        groups = await self._records.aggregate(
            {"$match": _LETTERS}, {"$group": group}, where=self._name, limit=_MOST_GROUPS
        )
        return {
            (str(each["_id"].get("scope")), str(each["_id"].get("handler"))): int(each["number"])
            for each in groups
        }

    async def letters(
        self, scope: str | None = None, handler: str | None = None
    ) -> Sequence[DeadLetter]:
        """Unresolved letters, in the order in which they came."""
        query: dict[str, Any] = {**_LETTERS}
        if scope is not None:
            query |= below(f"{scope}/")
        if handler is not None:
            query["handler"] = handler
        found = await self._records.find_all(query, self._name, level="majority")
        ordered = sorted((from_document(each, self._name) for each in found), key=itemgetter(0))
        return [letter for _, letter in ordered]

    async def resolve(self, letter: DeadLetter, how: How) -> bool:
        """Writes what became of it, durably; says whether it was still waiting."""
        resolution = {"$set": {"resolved_at": datetime.now(UTC), "how": how}}
        update = {"q": {"_id": letter_id(letter)} | _WAITING, "u": resolution}
        return bool(await self._records.update(update, self._where(letter)))

    def _key(self, document: Mapping[str, Any]) -> tuple[str, str, bytes | None]:
        try:
            return (
                record_fields.typed(document, "scope", str),
                record_fields.typed(document, "handler", str),
                bytes(record_fields.typed(document, "key", bytes)) or None,
            )
        except (KeyError, ValueError) as error:
            where = f"{self._name}, document {document.get('_id')!r}"
            raise unreadable_letter(where, record_fields.fault(error)) from error

    @property
    def _name(self) -> str:
        return str(self._records)

    def _where(self, letter: DeadLetter) -> str:
        return f"{self._name}, scope {letter.scope!r}, handler {letter.handler!r}"
