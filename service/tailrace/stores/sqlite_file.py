"""The open file of the SQLite store: one connection, used in a thread by one call at a time."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from anyio import CapacityLimiter, move_on_after, to_thread

from tailrace.errors import CheckpointCorrupt, CheckpointError, DeadLetterError
from tailrace.stores.sqlite_schema import advice, is_damage, open_connection

T = TypeVar("T")

CLOSE_SECONDS = 10.0
"""How long closing may take before the file is left as it is: a hung disk must not hold us."""

StoreError = type[CheckpointError] | type[DeadLetterError]


class SqliteFile:
    """Runs work on the connection on a limiter of its own, so that a hundred scopes do not take
    the threads that others wait for. A cancelled call is not torn: its statement ends as if it
    had not been cancelled.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._identity = _identity(path)
        self._limiter = CapacityLimiter(1)
        # anyio's shield does not hold against asyncio's own Task.cancel(): the limiter is then
        # free while the thread still works. The lock is what keeps the next one out.
        self._lock = threading.Lock()

    @classmethod
    async def open(cls, path: Path) -> SqliteFile:
        """Opens the file at ``path``, creating it and its directories if need be."""

        def opened() -> SqliteFile:
            absolute = path.absolute()
            connection = open_connection(absolute)
            try:
                return cls(connection, absolute)
            except OSError as error:  # removed since it was opened
                connection.close()
                raise CheckpointError(f"{absolute} was removed while it was opened") from error

        return await to_thread.run_sync(opened)

    async def run(
        self,
        work: Callable[[sqlite3.Connection], T],
        where: str,
        error: StoreError = CheckpointError,
    ) -> T:
        """Runs ``work`` in a thread, alone.

        Where SQLite fails it is raised as ``error``, with ``where`` beside the file's path.
        """

        def alone() -> T:
            with self._lock:
                self._require_own_file(error)
                try:
                    return work(self._connection)
                except sqlite3.Error as cause:
                    raise _failure(cause, f"{self.path}{where}", error) from cause

        return await to_thread.run_sync(alone, limiter=self._limiter, abandon_on_cancel=False)

    async def close(self) -> None:
        """Closes the file, if the disk answers in time."""

        def closed() -> None:
            with self._lock:
                self._connection.close()

        with move_on_after(CLOSE_SECONDS, shield=True):
            await to_thread.run_sync(closed, abandon_on_cancel=True)

    def _require_own_file(self, error: StoreError) -> None:
        """SQLite would go on writing to a file that has no name any more."""
        try:
            same = _identity(self.path) == self._identity
        except OSError:
            same = False
        if not same:
            raise error(
                f"{self.path} was moved, replaced or removed while the service used it, and "
                "what is saved now would be lost. Put the file back. If that is not possible, "
                "restore it from a backup before the service is started again"
            )


def _failure(cause: sqlite3.Error, where: str, error: StoreError) -> Exception:
    """What an error in operation means to the engine; ``where`` names file and scope."""
    if is_damage(cause):
        damaged = CheckpointCorrupt if error is CheckpointError else error
        return damaged(
            f"{where}: the file is damaged ({cause}). Stop the service and restore the file "
            "from a backup, or recover it with the sqlite3 shell's '.recover'"
        )
    return error(f"{where}: {cause}{advice(cause)}")


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode: whether the path still leads to the file that was opened."""
    status = os.stat(path)
    return status.st_dev, status.st_ino
