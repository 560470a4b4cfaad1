"""A collection of the stores in MongoDB: majority writes, and reads that say their concern."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.engine.ports import CommandRunner
from tailrace.errors import DriverError, TailraceError, describe

Documents = list[dict[str, Any]]

_MOST_GROUPS = 100_000
"""In one reply: more than there are pairs of scope and handler."""


@dataclass(frozen=True, slots=True)
class RecordCollection:
    """Majority writes with journal, within ``timeout_ms``; reads sorted by ``_id``.

    Whatever fails is raised as ``error``, which names ``where``. A write that failed may have been
    stored all the same.
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
        limit: int,
        level: str,
        fields: Collection[str] = (),
    ) -> Documents:
        """The first matches, as the primary (``local``) or a majority (``majority``) has them.

        ``linearizable`` waits until a majority has what the primary has; for one ``_id`` only.
        """
        command: dict[str, Any] = {
            "find": self.collection,
            "filter": query,
            "projection": dict.fromkeys(fields, 1),
            "sort": {"_id": 1},
            "limit": limit,
            "batchSize": limit,
            "singleBatch": True,
            "readConcern": {"level": level},
            "maxTimeMS": self.timeout_ms,
        }
        reply = await self._run(command, where)
        found: Documents = reply["cursor"]["firstBatch"]
        return found

    async def count(
        self, query: Mapping[str, Any], where: str, *, by: Sequence[str]
    ) -> dict[tuple[Any, ...], int]:
        """How many documents match, by the values of some fields, as the primary has them."""
        command: dict[str, Any] = {
            "aggregate": self.collection,
            "pipeline": [
                {"$match": query},
                {"$group": {"_id": {name: f"${name}" for name in by}, "number": {"$sum": 1}}},
            ],
            "cursor": {"batchSize": _MOST_GROUPS},
            "readConcern": {"level": "local"},
            "maxTimeMS": self.timeout_ms,
        }
        reply = await self._run(command, where)
        groups: Documents = reply["cursor"]["firstBatch"]
        return {
            tuple(group["_id"].get(name) for name in by): int(group["number"]) for group in groups
        }

    async def write(self, command: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Runs a command that writes. Errors of single writes are left in the reply."""
        concern = {"w": "majority", "j": True, "wtimeout": self.timeout_ms}
        return await self._run({**command, "writeConcern": concern}, where)

    async def _run(self, command: Mapping[str, Any], where: str) -> dict[str, Any]:
        try:
            reply = await self.runner.run(self.database, command)
        except DriverError as error:
            raise self.error(f"{where}: {describe(error)}") from error
        # A duplicate key is decisive whatever the majority did, and the caller sees to it.
        concern = reply.get("writeConcernError")
        if concern and not reply.get("writeErrors"):
            raise self.error(
                f"{where}: the primary has written, but not a majority within "
                f"{self.timeout_ms} ms: {concern.get('errmsg', concern)}"
            )
        return reply
