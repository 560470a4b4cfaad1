"""Dead letters in a collection of a replica set: one document per letter, with the event's bytes.

``_id`` is ``<scope>/<handler>/<hash of the key>/<letter>``, so that every query is a range of its
index; names of scopes and handlers have no slash. ``sequence`` is a timestamp of the server's
logical clock, which is unique and never goes back: the order holds across owners of a scope.
``number`` fences earlier owners (:mod:`tailrace.stores.mongodb_letter_numbers`).

A large event is in documents of its own (:mod:`tailrace.stores.mongodb_letter_parts`); then
``event`` is empty, and ``parts`` names them.

A resolved letter stays, with ``how`` and ``resolved_at``; a TTL index removes old ones::

    db.dead_letters.createIndex({resolved_at: 1}, {expireAfterSeconds: 2592000})
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from bson.int64 import Int64
from bson.timestamp import Timestamp

from tailrace.errors import DeadLetterError
from tailrace.event import ChangeEvent
from tailrace.model.dead_letter import DeadLetter, How
from tailrace.stores.indexed_letters import IndexedLetters, Key
from tailrace.stores.mongodb_collection import RecordCollection
from tailrace.stores.mongodb_letter_numbers import LetterNumbers
from tailrace.stores.mongodb_letter_parts import PART_BYTES, WAITING, LetterParts, below
from tailrace.stores.records import letter_record, read_letter, unreadable_letter

_MOST_GROUPS = 100_000
"""The limit of one reply: more than there are pairs of scope and handler."""

_ATTEMPTS = 3
"""How often a letter is tried that meets another document with its ``_id`` or its number."""

_LETTERS = {"letter": {"$exists": True}} | WAITING  # not other documents of the collection


class MongoDeadLetters(IndexedLetters):
    """A :class:`tailrace.engine.ports.DeadLetterStore` in a collection."""

    def __init__(self, records: RecordCollection, checkpoints: RecordCollection) -> None:
        super().__init__()
        self._records = records
        self._numbers = LetterNumbers(records, checkpoints)
        self._parts = LetterParts(records)
        self._name = str(records)

    async def count(self) -> Mapping[tuple[str, str], int]:
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
        query: dict[str, Any] = {**_LETTERS}
        if scope is not None:
            query |= below(f"{scope}/")
        if handler is not None:
            query["handler"] = handler
        return await self._read(query)

    async def resolve(self, letter: DeadLetter, how: How) -> bool:
        at, where = datetime.now(UTC), self._of(letter)
        query = {"_id": letter_id(letter)} | WAITING
        resolution = {"$set": {"resolved_at": at, "how": how}}
        found = await self._records.find_and_modify(query, resolution, where, fields=("parts",))
        if found is not None and "parts" in found:
            await self._parts.resolve(found["parts"], at, where)
        return found is not None

    async def _claim(self, scope: str, epoch: int) -> None:
        await self._numbers.claim(scope, epoch)
        # From here on, no letter of an earlier owner can use the parts that it has written.
        if unused := await self._parts.waiting(scope):
            query = below(f"{scope}/") | {"parts": {"$exists": True}} | WAITING
            used = await self._records.find_all(query, self._name, level="local", fields=("parts",))
            for prefix in unused - {each["parts"] for each in used}:
                await self._parts.resolve(prefix, datetime.now(UTC), self._name)

    async def _insert(self, letter: DeadLetter, epoch: int) -> None:
        document, where = to_document(letter), self._of(letter)
        query = {"_id": document.pop("_id")}
        # The letter may be there already. A write that changes nothing still waits until a majority
        # has what it found (LastOpFixer, src/mongo/db/ops).
        unchanged = {"q": query | WAITING, "u": {"$set": {"letter": letter.id}}}
        for _ in range(_ATTEMPTS):
            if len(letter.raw) > PART_BYTES:
                parts = await self._parts.write(letter.scope, letter.raw, where)
                document |= {"event": b"", "parts": parts}
            number = await self._numbers.take(letter.scope, epoch)
            update = {
                "q": query | {"resolved_at": {"$exists": True}},
                "u": {
                    "$set": document | {"number": Int64(number)},
                    "$unset": dict.fromkeys({"resolved_at", "how", "parts"} - document.keys(), ""),
                    "$currentDate": {"sequence": {"$type": "timestamp"}},
                },
                "upsert": True,
            }
            if await self._records.update(update, where) is not None:
                self._numbers.put_back(letter.scope, epoch, number + 1)
                return
            # A duplicate key: the letter is there, or its number is taken.
            if await self._records.update(unchanged, where):
                self._numbers.put_back(letter.scope, epoch, number)
                return
        raise DeadLetterError(f"{where}: {_ATTEMPTS} writes met others of the same number")

    async def _find(self, key: Key) -> bool:
        query = below(_key_prefix(*key)) | WAITING
        return bool(await self._records.find(query, self._name, level="local", fields=("letter",)))

    async def _keys(self, scope: str | None) -> Iterable[Key]:
        query = _LETTERS if scope is None else _LETTERS | below(f"{scope}/")
        fields = ("scope", "handler", "key")
        found = await self._records.find_all(query, self._name, level="local", fields=fields)
        return map(self._key, found)

    async def _letters_of(self, key: Key) -> Sequence[DeadLetter]:
        return await self._read(_LETTERS | below(_key_prefix(*key)))

    async def _read(self, query: Mapping[str, Any]) -> Sequence[DeadLetter]:
        """The letters that match, in the order of arrival."""
        found = await self._records.find_all(query, self._name, level="majority")
        letters = [from_document(await self._whole(each), self._name) for each in found]
        return [letter for _, letter in sorted(letters, key=itemgetter(0))]

    async def _whole(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The document of a letter with its event, which may be in parts."""
        if "parts" not in document:
            return document
        where = f"{self._name}, document {document['_id']!r}"
        event = await self._parts.read(str(document["parts"]), where)
        if len(event) != int.from_bytes(event[:4], "little"):  # the length that BSON begins with
            raise unreadable_letter(where, "parts of its event are missing")
        return {**document, "event": event}

    def _key(self, document: Mapping[str, Any]) -> Key:
        scope, handler, key = (document.get(each) for each in ("scope", "handler", "key"))
        if not (isinstance(scope, str) and isinstance(handler, str) and isinstance(key, bytes)):
            where = f"{self._name}, document {document.get('_id')!r}"
            raise unreadable_letter(where, "it lacks its scope, handler or key")
        return scope, handler, key or None

    def _of(self, letter: DeadLetter) -> str:
        return f"{self._name}, scope {letter.scope!r}, handler {letter.handler!r}"


def to_document(letter: DeadLetter) -> dict[str, Any]:
    """The document of an unresolved letter, without ``sequence``, which the server sets."""
    event = ChangeEvent.from_raw(letter.raw)
    return {
        **letter_record(letter),
        "_id": letter_id(letter),
        "operation": event.operation_type,
        "ns": str(event.ns or ""),
    }


def from_document(document: Mapping[str, Any], name: str) -> tuple[Timestamp, DeadLetter]:
    """The sequence and the letter in a document of the collection ``name``."""
    where = f"{name}, document {document.get('_id')!r}"
    letter, sequence = read_letter(document, where=where), document.get("sequence")
    if document["_id"] != letter_id(letter):
        raise unreadable_letter(where, "its _id is that of another letter")
    if not isinstance(sequence, Timestamp):
        raise unreadable_letter(where, "it has no sequence")
    return sequence, letter


def letter_id(letter: DeadLetter) -> str:
    return _key_prefix(letter.scope, letter.handler, letter.key) + letter.id


def _key_prefix(scope: str, handler: str, key: bytes | None) -> str:
    """The prefix of the ``_id`` of every letter of a key."""
    return f"{scope}/{handler}/{hashlib.sha256(key or b'').hexdigest()[:32]}/"
