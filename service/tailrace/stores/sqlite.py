"""The store in one SQLite file: the default, for it needs nothing else.

The file opens in the ``sqlite3`` shell: a row for each scope, gap and dead letter. A running
service has a write-ahead log beside it, so copy it with the shell's ``.backup`` and not with
``cp``. Several processes may use it at once (the command line beside the daemon).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tailrace.model import Checkpoint
from tailrace.model.checkpoint import unreadable
from tailrace.model.gap import Gap, unreadable_gap
from tailrace.stores import Store
from tailrace.stores.json_codec import parse
from tailrace.stores.records import fenced, read_gap, read_record
from tailrace.stores.sqlite_dead_letters import SqliteDeadLetters
from tailrace.stores.sqlite_file import SqliteFile

# Blobs: text that is not UTF-8 shall fail where we can name its record.
_ROWS = "SELECT CAST(scope AS BLOB), CAST(document AS BLOB) FROM checkpoints"
_GAPS = "SELECT CAST(digest AS BLOB), CAST(document AS BLOB) FROM gaps WHERE scope = ?"

# One statement, so that comparing and writing cannot be torn apart by another process.
_SAVE = """
INSERT INTO checkpoints (scope, epoch, sequence, document) VALUES (?, ?, ?, ?)
ON CONFLICT (scope) DO UPDATE
SET epoch = excluded.epoch, sequence = excluded.sequence, document = excluded.document
WHERE (excluded.epoch, excluded.sequence) > (checkpoints.epoch, checkpoints.sequence)
"""

# What is there already is identical: the digest is that of the whole document.
_RECORD = """
INSERT INTO gaps (scope, digest, document) VALUES (?, ?, ?)
ON CONFLICT (scope, digest) DO NOTHING
"""


@asynccontextmanager
async def open_store(path: str | Path) -> AsyncIterator[Store]:
    """Opens the file at ``path``, creating it and its directories if need be.

    Raises :class:`tailrace.errors.ConfigurationError` with a problem at ``store.path`` where the
    path or the file cannot be used, and :class:`tailrace.errors.CheckpointError` for what may
    pass (locked, disk full).
    """
    file = await SqliteFile.open(Path(path))
    try:
        yield Store(SqliteCheckpoints(file), SqliteDeadLetters(file))
    finally:
        await file.close()


class SqliteCheckpoints:
    """A :class:`tailrace.engine.ports.CheckpointStore`: what it has returned survives a power cut.

    Where a save raises anything but ``CheckpointFenced``, nothing was stored.
    """

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def load(self, scope: str) -> Checkpoint | None:
        """The scope's checkpoint, or ``None`` if there never was one."""

        def load(connection: sqlite3.Connection) -> Checkpoint | None:
            row = connection.execute(f"{_ROWS} WHERE scope = ?", (scope,)).fetchone()
            return None if row is None else self._read(row)

        return await self._file.run(load, _of(scope))

    async def save(self, checkpoint: Checkpoint) -> None:
        """Stores it; on the disk when this returns.

        Raises :class:`tailrace.errors.CheckpointFenced` unless its order is greater than that of
        what is stored.
        """
        scope = checkpoint.scope

        def save(connection: sqlite3.Connection) -> None:
            document = json.dumps(checkpoint.to_document())
            values = (scope, checkpoint.epoch, checkpoint.sequence, document)
            if connection.execute(_SAVE, values).rowcount == 0:
                stored = connection.execute(
                    "SELECT epoch, sequence FROM checkpoints WHERE scope = ?", (scope,)
                ).fetchone()
                raise fenced(checkpoint, stored, where=f"{self._file.path}{_of(scope)}")

        await self._file.run(save, _of(scope))

    async def list(self) -> Sequence[Checkpoint]:
        """Every stored checkpoint, by scope name."""

        def read(connection: sqlite3.Connection) -> Sequence[Checkpoint]:
            return [self._read(row) for row in connection.execute(f"{_ROWS} ORDER BY scope")]

        return await self._file.run(read, "")

    async def reset(self, scope: str) -> bool:
        """Forgets the scope's checkpoint, not its gaps; says whether there was one."""

        def delete(connection: sqlite3.Connection) -> bool:
            sql = "DELETE FROM checkpoints WHERE scope = ?"
            return connection.execute(sql, (scope,)).rowcount > 0

        return await self._file.run(delete, _of(scope))

    async def record_gap(self, gap: Gap) -> None:
        """Stores it once; on the disk when this returns."""

        def record(connection: sqlite3.Connection) -> None:
            connection.execute(_RECORD, (gap.scope, gap.digest, json.dumps(gap.to_document())))

        await self._file.run(record, _of(gap.scope))

    async def gaps(self, scope: str) -> Sequence[Gap]:
        """The scope's gaps, oldest first."""

        def read(connection: sqlite3.Connection) -> Sequence[Gap]:
            found = [self._read_gap(scope, row) for row in connection.execute(_GAPS, (scope,))]
            return sorted(found, key=lambda gap: gap.order)

        return await self._file.run(read, _of(scope))

    def _read(self, row: tuple[bytes, bytes]) -> Checkpoint:
        scope = row[0].decode(errors="replace")
        where = f"{self._file.path}{_of(scope)}"
        return read_record(parse(row[1], where, unreadable), scope=scope, where=where)

    def _read_gap(self, scope: str, row: tuple[bytes, bytes]) -> Gap:
        where = f"{self._file.path}{_of(scope)}, gap {row[0].decode(errors='replace')}"
        return read_gap(parse(row[1], where, unreadable_gap), scope=scope, where=where)


def _of(scope: str) -> str:
    return f", scope {scope!r}"
