"""What operators want of scopes, and former positions in a collection of a replica set.

The ``_id`` of a desired state is its scope's name; that of a former position is
``position:<scope>:<epoch>:<sequence>``, with numbers of 19 digits, so that they sort.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tailrace.errors import CheckpointCorrupt
from tailrace.model import Checkpoint
from tailrace.model.desired_state import DesiredState, DesiredStateTable
from tailrace.stores.former_positions import stored_positions, superfluous
from tailrace.stores.mongodb_collection import RecordCollection
from tailrace.stores.records import read_record

# No scope name has a colon. As ranges, so that the index on _id serves the query.
_STATES = {"$or": [{"_id": {"$gte": "", "$lt": "position:"}}, {"_id": {"$gte": "position;"}}]}


class MongoDesiredStates:
    """A :class:`tailrace.engine.ports.DesiredStateStore`."""

    def __init__(self, records: RecordCollection) -> None:
        self._records = records

    async def load(self, scope: str) -> DesiredState | None:
        found = await self._records.find({"_id": scope}, self._of(scope), level="linearizable")
        return self._read(found[0]) if found else None

    async def list(self) -> DesiredStateTable:
        states, unreadable = list[DesiredState](), dict[str, str]()
        for record in await self._records.find_all(_STATES, str(self._records), level="majority"):
            try:
                states.append(self._read(record))
            except CheckpointCorrupt as error:
                unreadable[record["_id"]] = str(error)
        return DesiredStateTable(states, unreadable)

    async def write(self, desired: DesiredState) -> bool:
        where = self._of(desired.scope)
        update = {
            "q": {"_id": desired.scope, "generation": desired.generation - 1},
            "u": {"_id": desired.scope, **desired.to_document()},
            "upsert": True,
        }
        if await self._records.update(update, where):
            return True
        return await self.load(desired.scope) == desired

    async def note(self, former: Checkpoint) -> None:
        where = self._of(former.scope)
        key = f"position:{former.scope}:{former.epoch:019}:{former.sequence:019}"
        document = {"_id": key, **former.to_document()}
        update = {"q": {"_id": key}, "u": document, "upsert": True}
        await self._records.update(update, where)
        fields = ("saved_at", "observed_generation", "handlers", "apart")
        noted = await self._records.find_all(
            _of_scope(former.scope), where, level="local", fields=fields
        )
        records = ((each["_id"], each) for each in noted[::-1])
        if forgotten := superfluous(stored_positions(records)):
            await self._records.delete_all({"_id": {"$in": list(forgotten)}}, where)

    async def positions(self, scope: str) -> Sequence[Checkpoint]:
        where = self._of(scope)
        found = await self._records.find_all(_of_scope(scope), where, level="majority")
        positions = list[Checkpoint]()
        for record in reversed(found):
            with suppress(CheckpointCorrupt):
                of = f"{where}, document {record['_id']!r}"
                positions.append(read_record(Checkpoint, record, scope=scope, where=of))
        return positions

    def _read(self, document: Mapping[str, Any]) -> DesiredState:
        scope = document["_id"]
        return read_record(DesiredState, document, scope=scope, where=self._of(scope))

    def _of(self, scope: str) -> str:
        return f"{self._records}, scope {scope!r}"


def _of_scope(scope: str) -> Mapping[str, Any]:
    return {"_id": {"$gt": f"position:{scope}:", "$lt": f"position:{scope};"}}
