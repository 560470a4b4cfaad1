"""Positions in one SQLite file: the default store.

The file opens in the ``sqlite3`` shell: one row a scope, its record as JSON, and one row a gap.
A running service has a write-ahead log beside it, so copy it with the shell's ``.backup`` and not
with ``cp``.
Opening and checking the file is :mod:`tailrace.checkpoints.sqlite_file`'s.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from anyio import CapacityLimiter, move_on_after, to_thread

from tailrace.checkpoints.record import fenced, read_gap, read_record
from tailrace.checkpoints.sqlite_file import failure, identity, open_file
from tailrace.errors import CheckpointCorrupt, CheckpointError
from tailrace.model import Checkpoint
from tailrace.model.checkpoint import unreadable
from tailrace.model.gap import Gap, unreadable_gap

T = TypeVar("T")

CLOSE_SECONDS = 10.0
"""How long closing may take before the file is left as it is: a hung disk must not hold us."""

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


class SqliteStore:
    """A :class:`tailrace.engine.ports.CheckpointStore` in a file that survives a power cut.

    Every statement runs in a thread, one at a time: on a limiter of its own, so that a hundred
    scopes do not take the threads that others wait for. A cancelled call is not torn: its
    statement ends as if it had not been cancelled.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._identity = identity(path)
        self._limiter = CapacityLimiter(1)
        # anyio's shield does not hold against asyncio's own Task.cancel(): the limiter is then
        # free while the thread still works. The lock is what keeps the next one out.
        self._lock = threading.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: str | Path) -> AsyncIterator[Self]:
        """Opens the file at ``path``, creating it and its directories if need be.

        Raises :class:`tailrace.errors.ConfigurationError` with a problem at ``checkpoint.path``
        where the path or the file cannot be used, and :class:`tailrace.errors.CheckpointError`
        for what may pass (locked, disk full).
        """
        store = await to_thread.run_sync(cls._open, Path(path))
        try:
            yield store
        finally:
            with move_on_after(CLOSE_SECONDS, shield=True):
                await to_thread.run_sync(store._close, abandon_on_cancel=True)

    def __repr__(self) -> str:
        return f"<SqliteStore: {self._path}>"

    async def load(self, scope: str) -> Checkpoint | None:
        """The scope's checkpoint, or ``None`` if there never was one."""
        return await self._run(partial(self._load, scope), self._where(scope))

    async def save(self, checkpoint: Checkpoint) -> None:
        """Stores it; on the disk when this returns.

        Raises :class:`tailrace.errors.CheckpointFenced` unless its order is greater than that of
        what is stored. Where it raises anything else, nothing was stored.
        """
        await self._run(partial(self._save, checkpoint), self._where(checkpoint.scope))

    async def list(self) -> Sequence[Checkpoint]:
        """Every stored checkpoint, by scope name."""
        return await self._run(self._list, str(self._path))

    async def reset(self, scope: str) -> bool:
        """Forgets the scope's checkpoint, not its gaps; says whether there was one."""
        return await self._run(partial(self._reset, scope), self._where(scope))

    async def record_gap(self, gap: Gap) -> None:
        """Stores it once; on the disk when this returns."""
        await self._run(partial(self._record, gap), self._where(gap.scope))

    async def gaps(self, scope: str) -> Sequence[Gap]:
        """The scope's gaps, oldest first."""
        return await self._run(partial(self._gaps, scope), self._where(scope))

    @classmethod
    def _open(cls, path: Path) -> Self:
        path = path.absolute()
        connection = open_file(path)
        try:
            return cls(connection, path)
        except OSError as error:  # removed since it was opened
            connection.close()
            raise CheckpointError(f"{path} was removed while it was opened") from error

    def _close(self) -> None:
        with self._lock:
            self._connection.close()

    async def _run(self, work: Callable[[], T], where: str) -> T:
        """Runs ``work`` in a thread, alone; ``where`` names file and scope in errors."""

        def alone() -> T:
            with self._lock:
                self._require_own_file()
                try:
                    return work()
                except sqlite3.Error as error:
                    raise failure(error, where) from error

        return await to_thread.run_sync(alone, limiter=self._limiter, abandon_on_cancel=False)

    def _require_own_file(self) -> None:
        """SQLite would go on writing to a file that has no name any more."""
        try:
            same = identity(self._path) == self._identity
        except OSError:
            same = False
        if not same:
            raise CheckpointError(
                f"{self._path} was moved, replaced or removed while the service used it, and "
                "what is saved now would be lost. Put the file back. If that is not possible, "
                "restore it from a backup before the service is started again"
            )

    def _load(self, scope: str) -> Checkpoint | None:
        row = self._connection.execute(f"{_ROWS} WHERE scope = ?", (scope,)).fetchone()
        return None if row is None else self._read(row)

    def _save(self, checkpoint: Checkpoint) -> None:
        document = json.dumps(checkpoint.to_document())
        values = (checkpoint.scope, checkpoint.epoch, checkpoint.sequence, document)
        if self._connection.execute(_SAVE, values).rowcount == 0:
            stored = self._connection.execute(
                "SELECT epoch, sequence FROM checkpoints WHERE scope = ?", (checkpoint.scope,)
            ).fetchone()
            raise fenced(checkpoint, stored, where=self._where(checkpoint.scope))

    def _list(self) -> Sequence[Checkpoint]:
        rows = self._connection.execute(f"{_ROWS} ORDER BY scope").fetchall()
        return [self._read(row) for row in rows]

    def _reset(self, scope: str) -> bool:
        sql = "DELETE FROM checkpoints WHERE scope = ?"
        return self._connection.execute(sql, (scope,)).rowcount > 0

    def _record(self, gap: Gap) -> None:
        values = (gap.scope, gap.digest, json.dumps(gap.to_document()))
        self._connection.execute(_RECORD, values)

    def _gaps(self, scope: str) -> Sequence[Gap]:
        rows = self._connection.execute(_GAPS, (scope,)).fetchall()
        return sorted((self._read_gap(scope, row) for row in rows), key=lambda gap: gap.order)

    def _read(self, row: tuple[bytes, bytes]) -> Checkpoint:
        scope = row[0].decode(errors="replace")
        where = self._where(scope)
        return read_record(_parse(row[1], where, unreadable), scope=scope, where=where)

    def _read_gap(self, scope: str, row: tuple[bytes, bytes]) -> Gap:
        where = f"{self._where(scope)}, gap {row[0].decode(errors='replace')}"
        return read_gap(_parse(row[1], where, unreadable_gap), scope=scope, where=where)

    def _where(self, scope: str) -> str:
        return f"{self._path}, scope {scope!r}"


def _parse(text: bytes, where: str, unreadable: Callable[[str, str], CheckpointCorrupt]) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(where, f"it is not JSON ({error})") from error
