"""A collection of the MongoDB store. It sends raw database commands and knows no driver."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.errors import DriverError, TailraceError, describe

if TYPE_CHECKING:
    from tailrace.stream import CommandRunner

Documents = list[dict[str, Any]]

DUPLICATE_KEY = 11000  # src/mongo/base/error_codes.yml
INVALID_ID = 53  # InvalidIdField
_NOBODY = "check:"
"""The ``_id`` of no document: no name has a colon at its end."""

PAGE = 1000
"""Documents per reply; a reply that would be too large has fewer."""


@dataclass(frozen=True, slots=True)
class RecordCollection:
    """Writes are journaled by a majority within ``timeout_ms``; reads are sorted by ``_id``.

    Failures are raised as ``error``. A failed write may have been stored all the same.
    """

    runner: CommandRunner
    database: str
    collection: str
    timeout_ms: int
    error: type[TailraceError]

    def __str__(self) -> str:
        return f"{self.database}.{self.collection}"

    async def find(
        self,
        query: Mapping[str, Any],
        where: str,
        *,
        level: str,
        limit: int = 1,
        fields: Collection[str] = (),
        sort: str = "_id",
    ) -> Documents:
        """The first matches, as the primary (``local``) or a majority (``majority``) has them.

        ``linearizable`` waits until a majority has what the primary has; only for a single ``_id``.
        """
        command: dict[str, Any] = {
            "find": self.collection,
            "filter": query,
            "projection": dict.fromkeys(fields, 1),
            "sort": {sort: 1},
            "limit": limit,
            "batchSize": limit,
            "singleBatch": True,
            "readConcern": {"level": level},
            "maxTimeMS": self.timeout_ms,
        }
        return await self._first_batch(command, where)

    async def find_all(
        self, query: Mapping[str, Any], where: str, *, level: str, fields: Collection[str] = ()
    ) -> Documents:
        """Every match, in the order of ``_id``."""
        # Pages by _id instead of getMore, so that an election between two pages does no harm.
        documents: Documents = []
        rest = query
        while page := await self.find(rest, where, level=level, limit=PAGE, fields=fields):
            documents += page
            rest = {"$and": [query, {"_id": {"$gt": page[-1]["_id"]}}]}
        return documents

    async def aggregate(
        self, *pipeline: Mapping[str, Any], where: str, limit: int, level: str = "local"
    ) -> Documents:
        """The result of a pipeline on the primary, in one reply."""
        command: dict[str, Any] = {
            "aggregate": self.collection,
            "pipeline": list(pipeline),
            "cursor": {"batchSize": limit},
            "readConcern": {"level": level},
            "maxTimeMS": self.timeout_ms,
        }
        return await self._first_batch(command, where)

    async def find_and_modify(
        self, query: Mapping[str, Any], update: Any, where: str, *, fields: Collection[str] = ()
    ) -> dict[str, Any] | None:
        """Changes the one match and returns the changed document; ``None`` if nothing matches."""
        command = {
            "findAndModify": self.collection,
            "query": query,
            "update": update,
            "fields": dict.fromkeys(fields, 1),
            "new": True,
            "writeConcern": self._concern,
        }
        reply = await self._run(command, where)
        document: dict[str, Any] | None = reply["value"]
        return document

    async def create_indexes(self, *indexes: Mapping[str, Any], where: str) -> None:
        """Creates indexes, unless they exist."""
        await self._run({"createIndexes": self.collection, "indexes": list(indexes)}, where)

    async def update_all(self, updates: Sequence[Mapping[str, Any]], where: str) -> int:
        """Sends several updates in one command; returns how many documents they matched or made.

        An upsert that met a duplicate key has its document.
        """
        command = {"update": self.collection, "updates": list(updates), "ordered": False}
        return await self._write(command, where) or 0

    async def update(self, update: Mapping[str, Any], where: str) -> int | None:
        """How many documents one update matched; ``None`` if its upsert met a duplicate key."""
        return await self._write({"update": self.collection, "updates": [update]}, where)

    async def delete(self, identity: str, where: str) -> bool:
        """Removes one document; returns True if it existed."""
        deletes = [{"q": {"_id": identity}, "limit": 1}]
        return bool(await self._write({"delete": self.collection, "deletes": deletes}, where))

    async def delete_all(self, query: Mapping[str, Any], where: str) -> None:
        """Removes every match."""
        deletes = [{"q": query, "limit": 0}]
        await self._write({"delete": self.collection, "deletes": deletes}, where)

    async def try_writing(self, where: str) -> None:
        """Raises unless the user may insert, change, remove and find documents here.

        A majority must answer. Nothing is written, and no collection is created.
        """
        refused = {"insert": self.collection, "documents": [{"_id": []}]}  # no _id is an array
        reply = await self._run({**refused, "writeConcern": self._concern}, where)
        codes = {each.get("code") for each in reply.get("writeErrors", ())}
        if codes != {INVALID_ID}:
            raise self.error(f"{where}: an insert was answered with {reply.get('writeErrors')}")
        await self.update_all([{"q": {"_id": _NOBODY}, "u": {"$set": {"tried": 0}}}], where)
        await self.delete(_NOBODY, where)
        await self.find({"_id": _NOBODY}, where, level="linearizable")

    @property
    def _concern(self) -> dict[str, Any]:
        return {"w": "majority", "j": True, "wtimeout": self.timeout_ms}

    async def _write(self, command: Mapping[str, Any], where: str) -> int | None:
        reply = await self._run({**command, "writeConcern": self._concern}, where)
        errors = reply.get("writeErrors", ())
        for error in errors:
            if error.get("code") != DUPLICATE_KEY:
                raise self.error(f"{where}: {error.get('errmsg', error)}")
        return None if errors else int(reply.get("n", 0))

    async def _first_batch(self, command: Mapping[str, Any], where: str) -> Documents:
        reply = await self._run(command, where)
        found: Documents = reply["cursor"]["firstBatch"]
        return found

    async def _run(self, command: Mapping[str, Any], where: str) -> dict[str, Any]:
        try:
            reply = await self.runner.run(self.database, command)
        except DriverError as error:
            raise self.error(f"{where}: {describe(error)}") from error
        # A duplicate key decides, whatever the majority did; the caller handles it.
        concern = reply.get("writeConcernError")
        if concern and not reply.get("writeErrors"):
            raise self.error(
                f"{where}: the primary has written, but not a majority within "
                f"{self.timeout_ms} ms: {concern.get('errmsg', concern)}"
            )
        return reply
