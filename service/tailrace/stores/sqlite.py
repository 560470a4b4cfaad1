"""The store in one SQLite file: the default, because it needs nothing else.

A running service has a write-ahead log beside the file, so copy the file with the ``sqlite3``
shell's ``.backup``. Several processes may use it at once (the command line beside the daemon).
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

from tailrace.model import Checkpoint
from tailrace.model.gap import Gap
from tailrace.model.stored_record import StoredRecord
from tailrace.stores import Store
from tailrace.stores.records import claim_first, fenced, read_json
from tailrace.stores.sqlite_dead_letters import SqliteDeadLetters
from tailrace.stores.sqlite_desired_states import SqliteDesiredStates
from tailrace.stores.sqlite_file import SqliteFile
from tailrace.stores.sqlite_leases import SqliteLeases
from tailrace.stores.sqlite_verifications import SqliteVerifications

R = TypeVar("R", bound=StoredRecord)

# As blobs: text that is not UTF-8 must fail where the error can name its record.
_CHECKPOINTS = "SELECT CAST(scope AS BLOB), CAST(document AS BLOB) FROM checkpoints"
_GAPS = "SELECT CAST(digest AS BLOB), CAST(document AS BLOB) FROM gaps WHERE scope = ?"

# One statement, so that no other process can write between the comparison and the write.
_SAVE = """
INSERT INTO checkpoints (scope, epoch, sequence, document) VALUES (?, ?, ?, ?)
ON CONFLICT (scope) DO UPDATE
SET epoch = excluded.epoch, sequence = excluded.sequence, document = excluded.document
WHERE (excluded.epoch, excluded.sequence) > (checkpoints.epoch, checkpoints.sequence)
"""

# A record that is not JSON stays as it is; reading it fails, too.
_CLAIM = """
UPDATE checkpoints
SET epoch = ?, sequence = 0, document = json_set(document, '$.epoch', ?, '$.sequence', 0)
WHERE scope = ? AND epoch < ? AND json_valid(document)
RETURNING CAST(scope AS BLOB), CAST(document AS BLOB)
"""

# A row with the same digest is identical: the digest covers the whole document.
_RECORD = """
INSERT INTO gaps (scope, digest, document) VALUES (?, ?, ?)
ON CONFLICT (scope, digest) DO NOTHING
"""


@asynccontextmanager
async def open_store(path: str | Path) -> AsyncIterator[Store]:
    """Opens the file at ``path``; :func:`.sqlite_schema.open_connection` says how."""
    file = await to_thread.run_sync(SqliteFile, Path(path))
    try:
        yield Store(
            SqliteCheckpoints(file),
            SqliteDeadLetters(file),
            SqliteLeases(file),
            SqliteDesiredStates(file),
            SqliteVerifications(file),
        )
    finally:
        await file.close()


class SqliteCheckpoints:
    """A :class:`tailrace.engine.ports.CheckpointStore`. A failed save has stored nothing."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def load(self, scope: str) -> Checkpoint | None:
        found = await self._file.run(f"{_CHECKPOINTS} WHERE scope = ?", (scope,), _of(scope))
        return self._checkpoint(*found.rows[0]) if found.rows else None

    async def save(self, checkpoint: Checkpoint) -> None:
        scope, version = checkpoint.scope, checkpoint.version
        values = (scope, *version, json.dumps(checkpoint.to_document()))
        if (await self._file.run(_SAVE, values, _of(scope))).changed == 0:
            sql = "SELECT epoch, sequence FROM checkpoints WHERE scope = ?"
            stored = await self._file.run(sql, (scope,), _of(scope))
            raise fenced(checkpoint, *stored.rows or [None], where=f"{self._file.path}{_of(scope)}")

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        found = await self._file.run(_CLAIM, (epoch, epoch, scope, epoch), _of(scope))
        if found.rows:
            return self._checkpoint(*found.rows[0])
        return await claim_first(self, scope, epoch, where=f"{self._file.path}{_of(scope)}")

    async def list(self) -> Sequence[Checkpoint]:
        found = await self._file.run(f"{_CHECKPOINTS} ORDER BY scope")
        return [self._checkpoint(*row) for row in found.rows]

    async def reset(self, scope: str) -> bool:
        sql = "DELETE FROM checkpoints WHERE scope = ?"
        return (await self._file.run(sql, (scope,), _of(scope))).changed > 0

    async def record_gap(self, gap: Gap) -> None:
        values = (gap.scope, gap.digest, json.dumps(gap.to_document()))
        await self._file.run(_RECORD, values, _of(gap.scope))

    async def gaps(self, scope: str) -> Sequence[Gap]:
        found = await self._file.run(_GAPS, (scope,), _of(scope))
        gaps = [
            self._read(Gap, text, scope, f", gap {digest.decode(errors='replace')}")
            for digest, text in found.rows
        ]
        return sorted(gaps, key=lambda gap: gap.sort_key)

    def _checkpoint(self, scope: bytes, text: bytes) -> Checkpoint:
        return self._read(Checkpoint, text, scope.decode(errors="replace"))

    def _read(self, kind: type[R], text: bytes, scope: str, which: str = "") -> R:
        return read_json(kind, text, scope=scope, where=f"{self._file.path}{_of(scope)}{which}")


def _of(scope: str) -> str:
    return f", scope {scope!r}"
