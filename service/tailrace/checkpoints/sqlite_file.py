"""The file of the SQLite store: creating it, refusing what is not ours, naming what failed.

Synchronous: :mod:`tailrace.checkpoints.sqlite` calls it in a thread. Nothing here knows what a
checkpoint or a gap is beyond the table that holds them.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from tailrace.errors import (
    CheckpointCorrupt,
    CheckpointError,
    ConfigurationError,
    Problem,
    TailraceError,
)
from tailrace.file_mode import PRIVATE

APPLICATION_ID = 0x7461696C
"""``tail``: four bytes of the header by which ``file`` and we tell our files from others."""

SCHEMA_VERSION = 2
"""``PRAGMA user_version``: the version of the tables, not of the records in them."""

BUSY_SECONDS = 5.0
"""How long a statement waits for another process's lock before it fails."""

_SMALLEST = 512  # bytes: SQLite's least page size

_CHECKPOINTS = """
CREATE TABLE checkpoints (
    scope    TEXT PRIMARY KEY NOT NULL,
    epoch    INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    document TEXT NOT NULL  -- JSON: service/tailrace/model/checkpoint.py
) WITHOUT ROWID
"""

_GAPS = """
CREATE TABLE gaps (
    scope    TEXT NOT NULL,
    digest   TEXT NOT NULL,
    document TEXT NOT NULL,  -- JSON: service/tailrace/model/gap.py
    PRIMARY KEY (scope, digest)
) WITHOUT ROWID
"""

_MIGRATIONS = {1: (_GAPS,)}
"""By the version that a file has: the statements that make the next one of it."""


def open_file(path: Path) -> sqlite3.Connection:
    """Opens the file, creating it and its directories where there is nothing yet.

    Raises :class:`ConfigurationError` for a path or a file that cannot be used, always before
    anything in it is changed, and :class:`CheckpointError` for what may pass (locked, full).
    """
    try:
        if not _exists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path)
        connection = _connect(path)
    except OSError as error:
        raise _problem(
            f"{path} cannot be created or opened ({error.strerror or error}). Choose a path in "
            "a directory that this user may write"
        ) from error
    except sqlite3.Error as error:
        raise _refusal(error, path) from error
    try:
        _check(connection, path)
        # The mode is part of the file. A copy made with VACUUM INTO lost it.
        if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise _problem(
                f"{path} cannot have a write-ahead log: its file system lacks shared memory or "
                "locks, as network file systems do. Choose a path on a local disk"
            )
        connection.execute("PRAGMA synchronous = FULL")
        _migrate(connection)
        connection.execute("SELECT scope, digest, document FROM gaps LIMIT 0")
        # A write of nothing: the only way to learn now that the file is read-only.
        connection.execute("DELETE FROM checkpoints WHERE 0")
    except sqlite3.Error as error:
        connection.close()
        raise _refusal(error, path) from error
    except UnicodeDecodeError as error:  # of SQLite's message, which quotes a damaged schema
        connection.close()
        raise _damaged(path, "its schema is no text") from error
    except BaseException:
        connection.close()
        raise
    return connection


def failure(error: sqlite3.Error, where: str) -> CheckpointError:
    """What an error in operation means to the engine; ``where`` names file and scope."""
    if _is_damage(error):
        return CheckpointCorrupt(
            f"{where}: the file is damaged ({error}). Stop the service and restore the file "
            "from a backup, or recover it with the sqlite3 shell's '.recover'"
        )
    advice = {
        sqlite3.SQLITE_FULL: ". Free some space: the last position that was saved is intact",
        sqlite3.SQLITE_BUSY: ". Another process holds a lock on it, perhaps an open sqlite3 shell",
        sqlite3.SQLITE_READONLY: ". The disk may have been remounted read-only",
        sqlite3.SQLITE_IOERR: ". Look at the disk",
    }.get(_primary(error), "")
    return CheckpointError(f"{where}: {error}{advice}")


def identity(path: Path) -> tuple[int, int]:
    """Device and inode: whether the path still leads to the file that was opened.

    Raises ``OSError`` where it leads nowhere.
    """
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _exists(path: Path) -> bool:
    """Whether there is a file to open; refuses what must not be mistaken for an empty store."""
    try:
        status = path.stat()
    except FileNotFoundError:
        log = Path(f"{path}-wal")
        if log.exists():
            raise _problem(
                f"{path} is gone but its write-ahead log {log} is there, so positions may be "
                "in it. Restore both from a backup, or remove the log to start without positions"
            ) from None
        return False
    if S_ISDIR(status.st_mode):
        raise _problem(f"{path} is a directory. Name a file in it, as {path / 'checkpoints.db'}")
    if not S_ISREG(status.st_mode):
        raise _problem(f"{path} is not a regular file. Choose another path")
    if status.st_size < _SMALLEST:
        # To SQLite it would be a new database. We never leave one like this (see _create), but
        # a copy that ran out of space does, and so does '>'.
        raise _problem(
            f"{path} is cut off ({status.st_size} bytes): positions that were in it are lost. "
            "Restore it from a backup, or remove it to start without positions"
        )
    return True


def _create(path: Path) -> None:
    """Makes a complete empty store under another name, then gives it its own.

    So no crash leaves half a store behind, and of two processes that do this at once one wins
    and both open the same file.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        # SQLite gives the log beside it the same mode.
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
        connection = sqlite3.connect(draft, isolation_level=None)
        try:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(_CHECKPOINTS)
            connection.execute(_GAPS)
        finally:
            connection.close()
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:
            # A file system without hard links. Here a race is possible, and not silent: the
            # store notices that its file was replaced.
            draft.rename(path)
    finally:
        for leftover in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm")):
            leftover.unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode=rw",  # never creates
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # each statement is its own transaction
        check_same_thread=False,  # anyio's worker threads change; the store allows one at a time
    )


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise _problem(
            f"{path} is an SQLite file of another application (application_id {application}). "
            "Choose another path"
        )
    version = _version(connection)
    if version != SCHEMA_VERSION and version not in _MIGRATIONS:
        raise _problem(
            f"{path} has schema version {version}; this release reads version {SCHEMA_VERSION}. "
            "It was written by another release of Tailrace: run that one, or choose another path"
        )
    connection.execute("SELECT scope, epoch, sequence, document FROM checkpoints LIMIT 0")
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _damaged(path, verdict)


def _migrate(connection: sqlite3.Connection) -> None:
    """Brings the tables of an older release up to ours: all of it, or nothing.

    A release that is older than the file refuses it from then on (see :func:`_check`).
    """
    if _version(connection) == SCHEMA_VERSION:
        return  # without a lock that others would have to wait for
    connection.execute("BEGIN IMMEDIATE")
    # Looked at again behind the lock: another process may have done it meanwhile.
    while (version := _version(connection)) in _MIGRATIONS:
        for statement in _MIGRATIONS[version]:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version + 1}")
    connection.execute("COMMIT")  # where anything fails, closing the connection takes it back


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _refusal(error: sqlite3.Error, path: Path) -> TailraceError:
    """What an error of SQLite means while the file is being opened."""
    if _primary(error) == sqlite3.SQLITE_NOTADB:
        return _problem(
            f"{path} is not an SQLite file, or it is damaged. Choose another path, or restore "
            "the file from a backup"
        )
    if _is_damage(error) or _primary(error) == sqlite3.SQLITE_ERROR:  # no such table or column
        return _damaged(path, str(error))
    if _primary(error) in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_AUTH,
    ):
        return _problem(
            f"{path} cannot be written ({error}). This user needs to write the file and its "
            "directory, for the write-ahead log"
        )
    return failure(error, str(path))


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_IOERR_SHORT_READ or _primary(error) in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    )


def _primary(error: sqlite3.Error) -> int:
    """The primary result code, the low byte of the extended one; 0 for Python's own errors."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _damaged(path: Path, found: str) -> ConfigurationError:
    return _problem(
        f"{path} is damaged ({' '.join(found.split())}). Restore it from a backup, recover it "
        "with the sqlite3 shell's '.recover', or remove it to start without positions"
    )


def _problem(message: str) -> ConfigurationError:
    return ConfigurationError(Problem("checkpoint.path", message))
