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
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from bson.int64 import Int64
from bson.timestamp import Timestamp

from tailrace.errors import DeadLetterError
from tailrace.event import ChangeEvent
from tailrace.model.dead_letter import (
    DeadLetter,
    DiscardedLetter,
    How,
    LetterHead,
    LetterUnreadable,
)
from tailrace.stores.indexed_letters import IndexedLetters, Key
from tailrace.stores.mongodb_collection import RecordCollection
from tailrace.stores.mongodb_letter_numbers import LetterNumbers
from tailrace.stores.mongodb_letter_parts import PART_BYTES, WAITING, LetterParts, below
from tailrace.stores.records import (
    MOST_DISCARDED,
    last_discarded,
    letter_record,
    read_head,
    read_letter,
    unreadable_letter,
)

_MOST_GROUPS = 100_000
"""The limit of one reply: more than there are pairs of scope and handler."""

_ATTEMPTS = 3
"""How often a dead letter is tried that meets another document with its ``_id`` or its number."""

_HEAD_FIELDS = ("scope", "handler", "letter", "key", "error", "attempts", "at", "sequence")
_OF_DISCARDED = ("key", "letter", "error", "resolved_at")
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

    async def heads(
        self,
        scope: str | None = None,
        handler: str | None = None,
        *,
        after: str = "",
        limit: int = 1000,
    ) -> Sequence[LetterHead]:
        query: dict[str, Any] = {**_LETTERS}
        if scope is not None:
            query["scope"] = scope
        if handler is not None:
            query["handler"] = handler
        if after:  # a page begins with those that have no time: only damaged ones have none
            query["sequence"] = {"$gt": _sequence(after)}
        documents = await self._records.find(
            query,
            self._name,
            level="majority",
            limit=limit,
            fields=_HEAD_FIELDS,
            sort="sequence",
        )
        return [self._head(each) for each in documents]

    async def queue(self, queue: Key) -> Sequence[LetterHead]:
        query = _LETTERS | below(_key_prefix(*queue))
        found = await self._records.find_all(
            query, self._name, level="majority", fields=_HEAD_FIELDS
        )
        # By time, which is never less than that of an earlier one.
        return [self._head(each) for each in sorted(found, key=_time_of)]

    async def read(self, head: LetterHead) -> DeadLetter | None:
        if head.unreadable:
            raise LetterUnreadable(head.unreadable)
        query = {"_id": letter_id(head)} | _LETTERS
        for document in await self._records.find(query, self._name, level="majority"):
            return from_document(await self._with_event(document), self._name)[1]
        return None

    async def discarded(self, scope: str, handler: str) -> Mapping[bytes | None, DiscardedLetter]:
        documents = await self._records.find(
            below(f"{scope}/{handler}/") | {"how": "discarded"},
            self._name,
            level="majority",
            limit=MOST_DISCARDED,
            fields=_OF_DISCARDED,
        )
        rows = [[each.get(name) for name in _OF_DISCARDED] for each in documents]
        return last_discarded(sorted(rows, key=lambda row: str(row[-1]), reverse=True))

    async def resolve(self, letter: DeadLetter | LetterHead, how: How) -> bool:
        at, where = datetime.now(UTC), self._of(letter)
        query = {"_id": letter_id(letter)} | WAITING
        resolution = {"$set": {"resolved_at": at, "how": how}}
        found = await self._records.find_and_modify(query, resolution, where, fields=("parts",))
        if found is not None and "parts" in found:
            await self._parts.resolve(found["parts"], at, where)
        return found is not None

    async def _claim(self, scope: str, epoch: int) -> None:
        await self._numbers.claim(scope, epoch)
        # From here on, no dead letter of an earlier owner can use the parts that it has written.
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
            # A duplicate key: the dead letter is there, or its number is taken.
            if await self._records.update(unchanged, where):
                self._numbers.put_back(letter.scope, epoch, number)
                return
        raise DeadLetterError(f"{where}: {_ATTEMPTS} writes met others of the same number")

    async def _find(self, key: Key) -> bool:
        query = below(_key_prefix(*key)) | WAITING
        return bool(await self._records.find(query, self._name, level="local", fields=("letter",)))

    async def _keys(self, scope: str) -> Iterable[Key]:
        query = _LETTERS | below(f"{scope}/")
        fields = ("scope", "handler", "key")
        found = await self._records.find_all(query, self._name, level="local", fields=fields)
        return map(self._key, found)

    def _head(self, document: Mapping[str, Any]) -> LetterHead:
        where = f"{self._name}, document {document.get('_id')!r}"
        sequence = document.get("sequence")
        known = sequence if isinstance(sequence, Timestamp) else Timestamp(0, 0)
        head = read_head(document, f"{known.time:010}.{known.inc:010}", where=where)
        reason = _wrong(document, head)
        return (
            head
            if head.unreadable or not reason
            else replace(head, unreadable=str(unreadable_letter(where, reason)))
        )

    async def _with_event(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The document of a dead letter with its event, which may be in parts."""
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

    def _of(self, letter: DeadLetter | LetterHead) -> str:
        return f"{self._name}, scope {letter.scope!r}, handler {letter.handler!r}"


def to_document(letter: DeadLetter) -> dict[str, Any]:
    """The document of an unresolved dead letter, without ``sequence``, which the server sets."""
    event = ChangeEvent.from_raw(letter.raw)
    return {
        **letter_record(letter),
        "_id": letter_id(letter),
        "operation": event.operation_type,
        "ns": str(event.ns or ""),
    }


def from_document(document: Mapping[str, Any], name: str) -> tuple[Timestamp, DeadLetter]:
    """The sequence and the dead letter in a document of the collection ``name``."""
    where = f"{name}, document {document.get('_id')!r}"
    letter = read_letter(document, where=where)
    if reason := _wrong(document, letter):
        raise unreadable_letter(where, reason)
    return document["sequence"], letter


def _wrong(document: Mapping[str, Any], letter: DeadLetter | LetterHead) -> str:
    """What only the whole document shows to be damaged."""
    if document["_id"] != letter_id(letter):
        return "its _id is that of another letter"
    return "" if isinstance(document.get("sequence"), Timestamp) else "it has no sequence"


def _sequence(arrival: str) -> Timestamp:
    time, _, inc = arrival.partition(".")
    return Timestamp(int(time), int(inc))


def _time_of(document: Mapping[str, Any]) -> tuple[int, int]:
    sequence = document.get("sequence")
    return (sequence.time, sequence.inc) if isinstance(sequence, Timestamp) else (0, 0)


def letter_id(letter: DeadLetter | LetterHead) -> str:
    return _key_prefix(letter.scope, letter.handler, letter.key) + letter.id


def _key_prefix(scope: str, handler: str, key: bytes | None) -> str:
    """The prefix of the ``_id`` of every dead letter of a key."""
    return f"{scope}/{handler}/{hashlib.sha256(key or b'').hexdigest()[:32]}/"
