"""The open file of the SQLite store: one connection, used by one call at a time, in a thread."""

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anyio import CapacityLimiter, move_on_after, to_thread

from tailrace.errors import CheckpointCorrupt, CheckpointError, DeadLetterError, LeaseError
from tailrace.stores.sqlite_schema import advice, is_damage, open_connection

CLOSE_SECONDS = 10.0
"""How long closing may take if the disk hangs."""

StoreError = type[CheckpointError] | type[DeadLetterError] | type[LeaseError]


class Result(NamedTuple):
    """The rows that a statement returned, and how many rows it changed."""

    rows: list[Any]
    changed: int


class SqliteFile:
    """Statements have a thread limiter of their own, so that many scopes do not use up the threads
    of other work. A statement whose call is cancelled still finishes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._connection = open_connection(self.path)
        self._identity = self._found()
        self._limiter = CapacityLimiter(1)
        # asyncio's own Task.cancel() ends a call and frees the limiter, while the thread works on.
        self._lock = threading.Lock()

    async def run(
        self, sql: str, values: Any = (), where: str = "", error: StoreError = CheckpointError
    ) -> Result:
        """Runs a statement as its own transaction; failures are raised as ``error``."""
        (result,) = await self.run_all([(sql, values)], where, error)
        return result

    async def run_all(
        self, statements: Sequence[tuple[str, Any]], where: str, error: StoreError
    ) -> list[Result]:
        """Runs statements without others of this process between them, each as its own transaction.

        If one fails, those before it have had their effect.
        """

        def execute(sql: str, values: Any) -> Result:
            cursor = self._connection.execute(sql, values)
            return Result(cursor.fetchall(), cursor.rowcount)

        def execute_all() -> list[Result]:
            with self._lock:
                self._require_own_file(error)
                try:
                    return [execute(sql, values) for sql, values in statements]
                except sqlite3.Error as cause:
                    raise _failure(cause, f"{self.path}{where}", error) from cause

        return await to_thread.run_sync(execute_all, limiter=self._limiter)

    async def close(self) -> None:
        """Closes the file, if the disk answers in time."""

        def close() -> None:
            with self._lock:
                self._connection.close()

        with move_on_after(CLOSE_SECONDS, shield=True):
            await to_thread.run_sync(close, abandon_on_cancel=True)

    def _require_own_file(self, error: StoreError) -> None:
        """Raises if the file was removed or replaced: SQLite would go on writing to the old one."""
        if self._identity is None or self._found() != self._identity:
            raise error(
                f"{self.path} was moved, replaced or removed while the service used it, and "
                "what is saved now would be lost. Put the file back. If that is not possible, "
                "restore it from a backup before the service is started again"
            )

    def _found(self) -> tuple[int, int] | None:
        """Device and inode of the file at the path; ``None`` if there is none."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino


def _failure(cause: sqlite3.Error, where: str, error: StoreError) -> Exception:
    if is_damage(cause):
        damaged = CheckpointCorrupt if error is CheckpointError else error
        return damaged(
            f"{where}: the file is damaged ({cause}). Stop the service and restore the file "
            "from a backup, or recover it with the sqlite3 shell's '.recover'"
        )
    return error(f"{where}: {cause}{advice(cause)}")
