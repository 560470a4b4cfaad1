"""Positions in a collection of a replica set: one document a scope, its ``_id`` the scope's name.

Gaps lie beside them, a document each, as ``gap:<scope>:<digest>``: no scope's name has a colon.

Speaks in raw database commands through one small protocol, so it knows no driver. Writes are
acknowledged by a majority's journals, reads see nothing that an election can take back, and the
start of a scope sees everything that was written before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from tailrace.checkpoints.record import fenced, read_gap, read_record
from tailrace.engine.ports import CommandRunner
from tailrace.engine.record_collection import Documents, RecordCollection
from tailrace.errors import CheckpointError
from tailrace.model import Checkpoint
from tailrace.model.gap import Gap

DUPLICATE_KEY = 11000  # src/mongo/base/error_codes.yml

TIMEOUT_MS = 10_000
"""How long the server may wait for a majority, or work on a read."""

PAGE = 100
"""Records a reply of ``list`` or ``gaps``; a full page stays far below the 16 MB of a reply."""

_ATTEMPTS = 3
"""How often a write that lost a race against another's *first* write is tried again."""


# As ranges, which the index on _id answers: ";" is the character behind ":".
_NO_GAPS = {"$or": [{"_id": {"$gte": "", "$lt": "gap:"}}, {"_id": {"$gte": "gap;"}}]}


class MongoStore:
    """A :class:`tailrace.engine.ports.CheckpointStore` that many hosts can share.

    A save that fails with anything but :class:`tailrace.errors.CheckpointFenced` may have been
    stored all the same (its acknowledgement was lost): the next attempt needs the next sequence.
    """

    def __init__(
        self, runner: CommandRunner, database: str, collection: str, timeout_ms: int
    ) -> None:
        self._records = RecordCollection(runner, database, collection, timeout_ms, CheckpointError)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        runner: CommandRunner,
        *,
        database: str = "tailrace",
        collection: str = "checkpoints",
        timeout_ms: int = TIMEOUT_MS,
    ) -> AsyncIterator[Self]:
        """Opens the store on a client that stays its owner's. Sends nothing yet.

        The user needs ``readWrite`` on the database. The collection appears with the first save.
        """
        yield cls(runner, database, collection, timeout_ms)

    def __repr__(self) -> str:
        return f"<MongoStore: {self._name}>"

    async def load(self, scope: str) -> Checkpoint | None:
        """The scope's checkpoint once a majority has it, or ``None``.

        A write whose outcome is unknown is settled by then: it waits for a majority, and fails
        without one. A majority's view alone could lack what the primary has, and refuses us by.
        """
        found = await self._records.find(
            {"_id": scope}, self._where(scope), limit=1, level="linearizable"
        )
        return self._read(found[0]) if found else None

    async def save(self, checkpoint: Checkpoint) -> None:
        """Stores it; in the journals of a majority when this returns.

        Raises :class:`tailrace.errors.CheckpointFenced` unless its order is greater than that of
        what is stored.
        """
        where = self._where(checkpoint.scope)
        update = {
            "q": {
                "_id": checkpoint.scope,
                "$or": [
                    {"epoch": {"$lt": checkpoint.epoch}},
                    {"epoch": checkpoint.epoch, "sequence": {"$lt": checkpoint.sequence}},
                ],
            },
            "u": {"_id": checkpoint.scope, **checkpoint.to_document()},
            "upsert": True,
        }
        for _ in range(_ATTEMPTS):
            if await self._write(update, where):
                return
            # The filter did not match, so the server tried to insert and met the stored one. But
            # two first writes can meet as well: the lesser of them then refuses the greater.
            found = await self._records.find(
                {"_id": checkpoint.scope}, where, limit=1, level="local"
            )
            stored = (found[0].get("epoch"), found[0].get("sequence")) if found else None
            if not _is_newer(checkpoint, stored):
                raise fenced(checkpoint, stored, where=where)
        raise CheckpointError(f"{where}: {_ATTEMPTS} writes met others' first writes")

    async def list(self) -> Sequence[Checkpoint]:
        """Every stored checkpoint, by scope name."""
        return [self._read(each) for each in await self._find_all(_NO_GAPS, self._name)]

    async def reset(self, scope: str) -> bool:
        """Forgets the scope's checkpoint, not its gaps; says whether there was one."""
        command = {
            "delete": self._records.collection,
            "deletes": [{"q": {"_id": scope}, "limit": 1}],
        }
        reply = await self._records.write(command, self._where(scope))
        if errors := reply.get("writeErrors"):
            raise CheckpointError(f"{self._where(scope)}: {errors[0].get('errmsg', errors[0])}")
        return int(reply.get("n", 0)) > 0

    async def record_gap(self, gap: Gap) -> None:
        """Stores it once; in the journals of a majority when this returns."""
        where = self._where(gap.scope)
        key = f"gap:{gap.scope}:{gap.digest}"
        # Not an insert: repeated, it would be refused, which does not say that a majority has it.
        # An update that changes nothing waits for one (LastOpFixer, src/mongo/db/ops).
        update = {"q": {"_id": key}, "u": {"$setOnInsert": gap.to_document()}, "upsert": True}
        for _ in range(_ATTEMPTS):
            if await self._write(update, where):
                return
        raise CheckpointError(f"{where}: {_ATTEMPTS} writes of a gap met others of the same gap")

    async def gaps(self, scope: str) -> Sequence[Gap]:
        """The scope's gaps as a majority knows them, oldest first."""
        query = {"_id": {"$gt": f"gap:{scope}:", "$lt": f"gap:{scope};"}}
        where = self._where(scope)
        found = [
            read_gap(each, scope=scope, where=f"{where}, document {each['_id']!r}")
            for each in await self._find_all(query, where)
        ]
        return sorted(found, key=lambda gap: gap.order)

    async def _write(self, update: Mapping[str, Any], where: str) -> bool:
        """One write that may insert; ``False`` where a record with the same key refused it."""
        command = {"update": self._records.collection, "updates": [update]}
        reply = await self._records.write(command, where)
        for error in reply.get("writeErrors", ()):
            if error.get("code") == DUPLICATE_KEY:
                return False
            raise CheckpointError(f"{where}: {error.get('errmsg', error)}")
        return True

    async def _find_all(self, query: Mapping[str, Any], where: str) -> Documents:
        """Every match, in the order of keys."""
        # By key and not by cursor: no reply depends on a server remembering the one before.
        found: Documents = []
        page = await self._records.find(query, where, limit=PAGE, level="majority")
        while page:
            found += page
            rest = {"$and": [query, {"_id": {"$gt": page[-1]["_id"]}}]}
            page = await self._records.find(rest, where, limit=PAGE, level="majority")
        return found

    def _read(self, document: Mapping[str, Any]) -> Checkpoint:
        scope = document["_id"]
        return read_record(document, scope=scope, where=self._where(scope))

    @property
    def _name(self) -> str:
        return str(self._records)

    def _where(self, scope: str) -> str:
        return f"{self._name}, scope {scope!r}"


def _is_newer(checkpoint: Checkpoint, stored: tuple[Any, Any] | None) -> bool:
    """Whether a refused checkpoint should have been accepted, by what is stored now."""
    if stored is None:
        return True
    return all(isinstance(part, int) for part in stored) and checkpoint.order > stored
