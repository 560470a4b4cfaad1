"""What operators want of scopes, and former positions in the SQLite store: a row for each."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from tailrace.errors import CheckpointCorrupt
from tailrace.model import Checkpoint
from tailrace.model.desired_state import DesiredState, DesiredStateTable
from tailrace.model.stored_record import StoredRecord
from tailrace.stores.former_positions import MOST_POSITIONS, stored_positions, superfluous
from tailrace.stores.records import read_json
from tailrace.stores.sqlite_file import SqliteFile

R = TypeVar("R", bound=StoredRecord)

# As blobs: text that is not UTF-8 must fail where the error can name its record.
_STATES = "SELECT CAST(scope AS BLOB), CAST(document AS BLOB) FROM desired_states"
_WRITE = """
INSERT INTO desired_states (scope, generation, document) VALUES (?, ?, ?)
ON CONFLICT (scope) DO UPDATE SET generation = excluded.generation, document = excluded.document
WHERE excluded.generation = desired_states.generation + 1
"""
_NOTE = "INSERT OR REPLACE INTO positions (scope, epoch, sequence, document) VALUES (?, ?, ?, ?)"
_NOTED = """
SELECT epoch, sequence, document FROM positions
WHERE scope = ?1 AND json_valid(document)
AND ?2 < (SELECT count(*) FROM positions WHERE scope = ?1)
ORDER BY epoch DESC, sequence DESC
"""
_FORGET = """
DELETE FROM positions WHERE scope = ? AND (epoch, sequence) IN (
    SELECT value ->> 0, value ->> 1 FROM json_each(?)
)
"""
_POSITIONS = """
SELECT CAST(scope AS BLOB), CAST(document AS BLOB) FROM positions WHERE scope = ?
ORDER BY epoch DESC, sequence DESC
"""


class SqliteDesiredStates:
    """A :class:`tailrace.engine.ports.DesiredStateStore`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def load(self, scope: str) -> DesiredState | None:
        found = await self._file.run(f"{_STATES} WHERE scope = ?", (scope,), _of(scope))
        return self._read(DesiredState, *found.rows[0]) if found.rows else None

    async def list(self) -> DesiredStateTable:
        states, unreadable = list[DesiredState](), dict[str, str]()
        for scope, text in (await self._file.run(f"{_STATES} ORDER BY scope")).rows:
            try:
                states.append(self._read(DesiredState, scope, text))
            except CheckpointCorrupt as error:
                unreadable[scope.decode(errors="replace")] = str(error)
        return DesiredStateTable(states, unreadable)

    async def write(self, desired: DesiredState) -> bool:
        values = (desired.scope, desired.generation, json.dumps(desired.to_document()))
        changed = (await self._file.run(_WRITE, values, _of(desired.scope))).changed
        return changed > 0 or await self.load(desired.scope) == desired

    async def note(self, former: Checkpoint) -> None:
        scope = former.scope
        values = (scope, *former.version, json.dumps(former.to_document()))
        await self._file.run(_NOTE, values, _of(scope))
        noted = await self._file.run(_NOTED, (scope, MOST_POSITIONS), _of(scope))
        records = (
            ((epoch, sequence), json.loads(document)) for epoch, sequence, document in noted.rows
        )
        forgotten: Sequence[tuple[int, int]] = superfluous(stored_positions(records))
        if forgotten:
            await self._file.run(_FORGET, (scope, json.dumps(forgotten)), _of(scope))

    async def positions(self, scope: str) -> Sequence[Checkpoint]:
        positions = list[Checkpoint]()
        for row in (await self._file.run(_POSITIONS, (scope,), _of(scope))).rows:
            with suppress(CheckpointCorrupt):
                positions.append(self._read(Checkpoint, *row))
        return positions

    def _read(self, kind: type[R], scope: bytes, text: bytes) -> R:
        name = scope.decode(errors="replace")
        return read_json(kind, text, scope=name, where=f"{self._file.path}{_of(name)}")


def _of(scope: str) -> str:
    return f", scope {scope!r}"
