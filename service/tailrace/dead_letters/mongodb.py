"""Dead letters in a collection of a replica set: one document a letter.

Its ``_id`` is ``<scope>/<handler>/<hash of the key>/<letter>``, so that every question is a range
of the index that a collection always has. The event lies in it as the very bytes that came. A
letter that was resolved stays, with ``how`` and ``resolved_at``, as the record of what was set
aside; a TTL index on ``resolved_at`` limits that::

    db.dead_letters.createIndex({resolved_at: 1}, {expireAfterSeconds: 2592000})

Letters are in the order of ``sequence``, a number that is taken from the document ``sequence`` of
the same collection before each letter is written. No clock and no process counts, so the order
also holds across owners of a scope. That number and letter are two writes does no harm: a scope
has one owner at a time, which sets an event aside only after all earlier ones of its key; a number
whose letter was never written is missing, and nothing else.

An event above some 15.9 MB (joined from fragments) does not fit; the file has no such limit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Hashable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Self

from anyio import Lock

from tailrace.dead_letters.held import Held, Identity
from tailrace.dead_letters.packing import (
    SEQUENCE,
    key_of,
    letter_of,
    path_of,
    prefix_of,
    to_document,
)
from tailrace.dead_letters.record import How
from tailrace.engine.ports import CommandRunner
from tailrace.engine.record_collection import Documents, RecordCollection
from tailrace.errors import CommandFailed, DeadLetterError
from tailrace.event.dead_letter import DeadLetter

DUPLICATE_KEY = 11000  # src/mongo/base/error_codes.yml

TIMEOUT_MS = 10_000
"""How long the server may wait for a majority, or work on a read."""

PAGE = 100
"""Letters a reply; one that would be too large is shorter."""

_ATTEMPTS = 3
"""How often what another process's write has refused is tried again."""

_WAITING = {"resolved_at": {"$exists": False}}


class MongoDeadLetters:
    """A :class:`tailrace.engine.ports.DeadLetterStore` that many hosts can share.

    A letter that could not be added may have been stored all the same (its acknowledgement was
    lost): adding it again stores it once. Until then its key counts as held.
    """

    def __init__(
        self, runner: CommandRunner, database: str, collection: str, timeout_ms: int
    ) -> None:
        self._records = RecordCollection(runner, database, collection, timeout_ms, DeadLetterError)
        self._held = Held()
        # One command at a time: what is known here must not be overtaken by an older answer.
        self._lock = Lock()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        runner: CommandRunner,
        *,
        database: str = "tailrace",
        collection: str = "dead_letters",
        timeout_ms: int = TIMEOUT_MS,
    ) -> AsyncIterator[Self]:
        """Opens the store on a client that stays its owner's, and reads which keys are held.

        The user needs ``readWrite`` on the database. The collection appears with the first letter.
        """
        store = cls(runner, database, collection, timeout_ms)
        await store.refresh()
        yield store

    def __repr__(self) -> str:
        return f"<MongoDeadLetters: {self._name}>"

    async def add(self, letter: DeadLetter) -> None:
        """Stores it behind all others, once; in the journals of a majority when this returns."""
        identity, where = Identity.of(letter), self._where(letter)
        path, key = path_of(letter), letter.key
        async with self._lock:
            # Before it is stored: a cancelled call must not leave a letter with a key let go.
            self._held.add(identity, key)
            document = to_document(letter, path, await self._next(where))
            replace = {
                "q": {"_id": path, "resolved_at": {"$exists": True}},
                "u": document,
                "upsert": True,
            }
            if not await self._write(replace, where):
                # It waits already. A write that changes nothing still waits for a majority to
                # have what it found (LastOpFixer, src/mongo/db/ops).
                await self._write({"q": {"_id": path}, "u": {"$set": {"letter": letter.id}}}, where)

    def held(self, scope: str, handler: str) -> Collection[Hashable]:
        """Keys that have unresolved letters, as last known here."""
        return self._held.keys(scope, handler)

    async def holds(self, scope: str, handler: str, key: Hashable) -> bool:
        """Whether the key has unresolved letters now, as the primary knows it."""
        prefix = prefix_of(scope, handler, key)
        async with self._lock:
            query = _below(prefix) | _WAITING
            found = await self._records.find(
                query, self._name, limit=1, level="local", fields=("letter",)
            )
            if not found:
                self._held.release(scope, handler, key)
            for document in found:
                self._held.add(Identity(scope, handler, str(document.get("letter"))), key)
            return bool(found)

    async def refresh(self) -> None:
        """Reads which keys are held: another owner of a scope may have added some."""
        async with self._lock:
            held = Held()
            fields = ("letter", "scope", "handler", "key")
            for document in await self._find_all(_LETTERS, fields=fields):
                held.add(*key_of(document, self._name))
            self._held = held

    async def count(self) -> Mapping[tuple[str, str], int]:
        """How many unresolved letters there are by scope and handler, as the primary knows it."""
        by = ("scope", "handler")
        groups = await self._records.count(_LETTERS, self._name, by=by)
        return {(str(scope), str(handler)): number for (scope, handler), number in groups.items()}

    async def letters(
        self, scope: str | None = None, handler: str | None = None
    ) -> list[DeadLetter]:
        """Unresolved letters, in the order in which they came."""
        query: dict[str, Any] = {**_LETTERS}
        if scope is not None:
            query |= _below(f"{scope}/")
        if handler is not None:
            query["handler"] = handler
        async with self._lock:
            found = await self._find_all(query, level="majority")
        numbered = [letter_of(each, self._name) for each in found]
        return [letter for _, letter in sorted(numbered, key=lambda pair: pair[0])]

    async def resolve(self, letter: DeadLetter, how: How) -> bool:
        """Writes what became of it, durably; says whether it was still waiting."""
        resolution = {"$set": {"resolved_at": datetime.now(UTC), "how": how}}
        async with self._lock:
            update = {"q": {"_id": path_of(letter)} | _WAITING, "u": resolution}
            waited = await self._write(update, self._where(letter)) > 0
            self._held.remove(Identity.of(letter), letter.key)
        return waited

    async def _next(self, where: str) -> int:
        command = {
            "findAndModify": self._records.collection,
            "query": {"_id": SEQUENCE},
            "update": {"$inc": {"last": 1}},
            "upsert": True,
            "new": True,
        }
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                reply = await self._records.write(command, where)
            except DeadLetterError as error:
                # Two take the first number at once: the other one has made the document.
                cause = error.__cause__
                refused = isinstance(cause, CommandFailed) and cause.code == DUPLICATE_KEY
                if not refused or attempt == _ATTEMPTS:
                    raise
            else:
                if (value := reply.get("value")) is not None:  # none: the same, elsewhere
                    return int(value["last"])
        raise DeadLetterError(f"{where}: the server gave no number for the letter")

    async def _write(self, update: Mapping[str, Any], where: str) -> int:
        """How many documents one write met; none where it met one with its ``_id`` that waits."""
        command = {"update": self._records.collection, "updates": [update]}
        reply = await self._records.write(command, where)
        for error in reply.get("writeErrors", ()):
            if error.get("code") == DUPLICATE_KEY:
                return 0
            raise DeadLetterError(f"{where}: {error.get('errmsg', error)}")
        return int(reply.get("n", 0))

    async def _find_all(
        self, query: Mapping[str, Any], *, fields: Collection[str] = (), level: str = "local"
    ) -> Documents:
        # By _id and not by cursor: no reply depends on a server remembering the one before.
        found: Documents = []
        page = await self._records.find(query, self._name, limit=PAGE, level=level, fields=fields)
        while page:
            found += page
            rest = {"$and": [query, {"_id": {"$gt": page[-1]["_id"]}}]}
            page = await self._records.find(
                rest, self._name, limit=PAGE, level=level, fields=fields
            )
        return found

    @property
    def _name(self) -> str:
        return str(self._records)

    def _where(self, letter: DeadLetter) -> str:
        return f"{self._name}, scope {letter.scope!r}, handler {letter.handler!r}"


# The document of the sequence is no letter.
_LETTERS = {"letter": {"$exists": True}} | _WAITING


def _below(prefix: str) -> dict[str, Any]:
    """Every ``_id`` that begins with ``prefix``, which ends with "/": "0" is the next character."""
    return {"_id": {"$gte": prefix, "$lt": f"{prefix[:-1]}0"}}
