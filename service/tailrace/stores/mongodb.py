"""The store in a database of a replica set, which many hosts can share.

``checkpoints`` has one document per scope, whose ``_id`` is the scope's name, and one per gap,
``gap:<scope>:<digest>`` (no scope name has a colon). ``dead_letters`` has one document per letter.
``leases`` has one per scope and one per process that shares the scopes, ``desired_states`` one per
scope and one per former position, ``verifications`` one per handler of a scope.

Reads return nothing that an election can roll back, and the start of a scope sees everything that
was written before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tailrace.database_names import STORE_COLLECTIONS
from tailrace.errors import (
    CheckpointError,
    CommandFailed,
    DeadLetterError,
    LeaseError,
    StartRefused,
    TailraceError,
)
from tailrace.model import Checkpoint
from tailrace.model.gap import Gap
from tailrace.stores import Store
from tailrace.stores.mongodb_collection import RecordCollection
from tailrace.stores.mongodb_dead_letters import MongoDeadLetters
from tailrace.stores.mongodb_desired_states import MongoDesiredStates
from tailrace.stores.mongodb_leases import MongoLeases
from tailrace.stores.mongodb_verifications import MongoVerifications
from tailrace.stores.records import claim_first, fenced, read_record
from tailrace.stream.resumable import UNAUTHORIZED

if TYPE_CHECKING:
    from tailrace.stream import CommandRunner

TIMEOUT_MS = 10_000
"""How long the server may wait for a majority, or work on a read."""

_ATTEMPTS = 3
"""How often a write is tried that collides with another process's *first* write."""

# As ranges, so that the index on _id serves the query: ";" is the character after ":".
_NO_GAPS = {"$or": [{"_id": {"$gte": "", "$lt": "gap:"}}, {"_id": {"$gte": "gap;"}}]}


@asynccontextmanager
async def open_store(
    runner: CommandRunner, *, database: str = "tailrace", timeout_ms: int = TIMEOUT_MS
) -> AsyncIterator[Store]:
    """The store through ``runner``, whose user needs ``readWrite`` on the database."""
    checkpoints, letters, leases, states, verifications = _collections(runner, database, timeout_ms)
    yield Store(
        MongoCheckpoints(checkpoints),
        MongoDeadLetters(letters, checkpoints),
        MongoLeases(leases),
        MongoDesiredStates(states),
        MongoVerifications(verifications),
    )


async def probe_collections(runner: CommandRunner, database: str) -> str:
    """Tries every kind of access that the store needs; leaves nothing. Returns what is possible.

    Raises :class:`tailrace.errors.TailraceError`.
    """
    for records in _collections(runner, database, TIMEOUT_MS):
        try:
            await records.try_writing(str(records))
        except TailraceError as error:
            if isinstance(error.__cause__, CommandFailed) and error.__cause__.code == UNAUTHORIZED:
                message = (
                    f"the user may not write {records}: grant the role readWrite on {database}"
                )
                raise StartRefused(message) from error
            raise
    return f"the database {database} can be written"


def _collections(
    runner: CommandRunner, database: str, timeout_ms: int
) -> tuple[RecordCollection, ...]:
    """Those of checkpoints, dead letters, leases, desired states and verifications."""
    errors = (CheckpointError, DeadLetterError, LeaseError, CheckpointError, CheckpointError)
    return tuple(
        RecordCollection(runner, database, name, timeout_ms, error)
        for name, error in zip(STORE_COLLECTIONS, errors, strict=True)
    )


class MongoCheckpoints:
    """A :class:`tailrace.engine.ports.CheckpointStore`. A failed save may have been stored."""

    def __init__(self, records: RecordCollection) -> None:
        self._records = records

    async def load(self, scope: str) -> Checkpoint | None:
        # Includes writes of unknown outcome: "majority" could lack a write that the primary has
        # and that makes it refuse the next save.
        found = await self._records.find({"_id": scope}, self._where(scope), level="linearizable")
        return self._read(found[0]) if found else None

    async def save(self, checkpoint: Checkpoint) -> None:
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
            if await self._records.update(update, where) is not None:
                return
            # The filter did not match, so the server tried to insert and met the stored document.
            # If two first writes come at once, the lesser one may refuse the greater.
            records = await self._records.find({"_id": checkpoint.scope}, where, level="local")
            if records:
                stored = records[0].get("epoch"), records[0].get("sequence")
                numbers = all(isinstance(each, int) for each in stored)
                if not (numbers and checkpoint.version > stored):
                    raise fenced(checkpoint, stored, where=where)
        raise CheckpointError(f"{where}: {_ATTEMPTS} writes met others' first writes")

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        where = self._where(scope)
        query = {"_id": scope, "epoch": {"$lt": epoch}}
        update = {"$set": {"epoch": epoch, "sequence": 0}}
        found = await self._records.find_and_modify(query, update, where)
        if found is not None:
            return self._read(found)
        return await claim_first(self, scope, epoch, where=where)

    async def list(self) -> Sequence[Checkpoint]:
        found = await self._records.find_all(_NO_GAPS, str(self._records), level="majority")
        return [self._read(each) for each in found]

    async def reset(self, scope: str) -> bool:
        return await self._records.delete(scope, self._where(scope))

    async def record_gap(self, gap: Gap) -> None:
        where = self._where(gap.scope)
        key = f"gap:{gap.scope}:{gap.digest}"
        # Not an insert: the server refuses a repeated one, which does not tell that a majority has
        # the gap. An update that changes nothing waits for a majority (LastOpFixer,
        # src/mongo/db/ops).
        update = {"q": {"_id": key}, "u": {"$setOnInsert": gap.to_document()}, "upsert": True}
        for _ in range(_ATTEMPTS):
            if await self._records.update(update, where) is not None:
                return
        raise CheckpointError(f"{where}: {_ATTEMPTS} writes met others of the same gap")

    async def gaps(self, scope: str) -> Sequence[Gap]:
        query = {"_id": {"$gt": f"gap:{scope}:", "$lt": f"gap:{scope};"}}
        where = self._where(scope)
        found = [
            read_record(Gap, each, scope=scope, where=f"{where}, document {each['_id']!r}")
            for each in await self._records.find_all(query, where, level="majority")
        ]
        return sorted(found, key=lambda gap: gap.sort_key)

    def _read(self, document: Mapping[str, Any]) -> Checkpoint:
        scope = document["_id"]
        return read_record(Checkpoint, document, scope=scope, where=self._where(scope))

    def _where(self, scope: str) -> str:
        return f"{self._records}, scope {scope!r}"
