"""The file of the SQLite store: its tables, its creation, and the checks at its opening."""

import os
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from stat import S_ISREG

from tailrace.durable_files import PRIVATE, probe_directory
from tailrace.errors import CheckpointError, ConfigurationError, Problem, TailraceError

APPLICATION_ID = 0x7461696C
"""``tail``: four bytes of the header that distinguish our files from others."""

SCHEMA_VERSION = 7
"""``PRAGMA user_version``: the version of the tables, not of the records in them."""

BUSY_SECONDS = 5.0
"""How long a statement waits for another process's lock before it fails."""

_SMALLEST = 512  # bytes: SQLite's least page size
_FORBIDDEN = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY)

_SCHEMA = f"""
PRAGMA journal_mode = WAL;
BEGIN;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE checkpoints (
    scope    TEXT PRIMARY KEY NOT NULL,
    epoch    INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    document TEXT NOT NULL  -- JSON: tailrace/model/checkpoint.py
) WITHOUT ROWID;
CREATE TABLE gaps (
    scope    TEXT NOT NULL,
    digest   TEXT NOT NULL,
    document TEXT NOT NULL,  -- JSON: tailrace/model/gap.py
    PRIMARY KEY (scope, digest)
) WITHOUT ROWID;
CREATE TABLE desired_states (
    scope      TEXT PRIMARY KEY NOT NULL,
    generation INTEGER NOT NULL,
    document   TEXT NOT NULL  -- JSON: tailrace/model/desired_state.py
) WITHOUT ROWID;
CREATE TABLE positions (
    scope    TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    document TEXT NOT NULL,  -- JSON: a checkpoint of the past
    PRIMARY KEY (scope, epoch, sequence)
) WITHOUT ROWID;
CREATE TABLE verifications (
    scope    TEXT NOT NULL,
    handler  TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    document TEXT NOT NULL,  -- JSON: tailrace/model/verification.py
    PRIMARY KEY (scope, handler)
) WITHOUT ROWID;
CREATE TABLE dead_letters (
    number      INTEGER PRIMARY KEY,  -- in the order in which they came
    scope       TEXT NOT NULL,
    handler     TEXT NOT NULL,
    letter      TEXT NOT NULL,     -- the digest of the event's token
    key         BLOB NOT NULL,     -- of the changed document: tailrace/event/document_key.py
    error       TEXT NOT NULL,
    attempts    INTEGER NOT NULL,
    at          TEXT NOT NULL,
    resolved_at TEXT,              -- NULL: it waits
    how         TEXT,              -- replayed or discarded
    event       BLOB NOT NULL      -- BSON. The last: what is behind large values is slow
);
CREATE UNIQUE INDEX waiting ON dead_letters (scope, handler, letter) WHERE resolved_at IS NULL;
CREATE INDEX waiting_by_number ON dead_letters (number) WHERE resolved_at IS NULL;
CREATE INDEX waiting_by_key ON dead_letters (scope, handler, key) WHERE resolved_at IS NULL;
CREATE TABLE leases (
    scope     TEXT PRIMARY KEY NOT NULL,
    epoch     INTEGER NOT NULL,
    owner     TEXT NOT NULL,  -- the member's id; empty: nobody
    wanted_by TEXT NOT NULL,
    boot      TEXT NOT NULL,  -- the kernel's boot_id
    until     REAL NOT NULL   -- seconds since that boot
) WITHOUT ROWID;
CREATE TABLE members (
    id         TEXT PRIMARY KEY NOT NULL,
    name       TEXT NOT NULL,
    max_scopes INTEGER NOT NULL,
    leaving    INTEGER NOT NULL,
    boot       TEXT NOT NULL,
    joined     REAL NOT NULL,
    until      REAL NOT NULL,
    report     TEXT NOT NULL  -- what it says of the scopes that it follows
) WITHOUT ROWID;
CREATE TABLE member_scopes (
    member TEXT NOT NULL,
    scope  TEXT NOT NULL,  -- one that the member configures
    PRIMARY KEY (member, scope)
) WITHOUT ROWID;
COMMIT;
"""


def open_connection(path: Path) -> sqlite3.Connection:
    """Opens the file; creates it and its directories if they do not exist.

    Raises :class:`ConfigurationError` for an unusable path or file, always before anything in it
    changes, and :class:`CheckpointError` for a temporary problem (locked, full).
    """
    try:
        if not _exists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path)
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw",  # never creates
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,  # each statement is its own transaction
            check_same_thread=False,  # anyio's worker threads change; one at a time uses it
        )
        try:
            _check(connection, path)
        except BaseException:
            connection.close()
            raise
    # SQLite quotes a damaged schema, which may not be valid text.
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        raise _refusal(error, path) from error
    return connection


def probe_file(name: str) -> str:
    """Tries to write the file, or to create one there; leaves nothing. Returns what is possible.

    Blocks. Raises what :func:`open_connection` raises.
    """
    path = Path(name).absolute()
    try:
        if not _exists(path):
            with probe_directory(path.parent) as directory:
                open_connection(directory / path.name).close()
            return f"{name} can be created"
        with closing(open_connection(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO checkpoints VALUES ('check:', 0, 0, '')")
            connection.execute("ROLLBACK")
        return f"{name} can be written"
    except (OSError, sqlite3.Error) as error:
        raise _refusal(error, path) from error


def _exists(path: Path) -> bool:
    """Whether the file exists; raises for anything that must not be taken for an empty store."""
    try:
        status = path.stat()
    except FileNotFoundError:
        log = Path(f"{path}-wal")
        if log.exists():
            raise _problem(
                f"{path} is gone but its write-ahead log {log} is there, and may hold positions. "
                "Restore both from a backup, or remove the log to start without positions"
            ) from None
        return False
    if not S_ISREG(status.st_mode):
        raise _problem(f"{path} is not a regular file. Name a file, as {path / 'tailrace.db'}")
    if status.st_size < _SMALLEST:
        # SQLite would take it for a new database. A copy that ran out of space leaves such a file.
        raise _problem(
            f"{path} is cut off ({status.st_size} bytes): positions that were in it are lost. "
            "Restore it from a backup, or remove it to start without positions"
        )
    return True


def _create(path: Path) -> None:
    """Makes a complete empty store under another name, then links it to its final name.

    So a crash never leaves half a store, and if two processes do this at once, one wins.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        # SQLite gives its write-ahead log the same mode.
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
        with closing(sqlite3.connect(draft)) as connection:
            connection.executescript(_SCHEMA)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:
            # No hard links here. If another process has won, it notices that its file was replaced.
            draft.rename(path)
    finally:
        for leftover in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm")):
            leftover.unlink(missing_ok=True)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuses a file that is damaged, not ours, or cannot be written durably."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise _problem(
            f"{path} is an SQLite file of another application (application_id {application}). "
            "Choose another path"
        )
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise _problem(
            f"{path} has schema version {version}; this release reads version {SCHEMA_VERSION}. "
            "It was written by another release of Tailrace. Note its positions with that release's "
            "'tailrace checkpoints show', choose another store.path, and seek to them there with "
            "'tailrace scopes seek'"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _damaged(path, verdict)
    # The journal mode is part of the file. A copy made with VACUUM INTO has lost it.
    if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise _problem(
            f"{path} cannot have a write-ahead log: its file system lacks shared memory or "
            "locks, as network file systems do. Choose a path on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")
    # A write without effect: the only way to learn now that the file is read-only.
    connection.execute("DELETE FROM checkpoints WHERE 0")


def _refusal(error: Exception, path: Path) -> TailraceError:
    """The error to raise for a failure to open the file."""
    if isinstance(error, OSError):
        return _problem(
            f"{path} cannot be created or opened ({error.strerror or error}). Choose a path in "
            "a directory that this user may write"
        )
    if _primary(error) == sqlite3.SQLITE_NOTADB:
        return _problem(
            f"{path} is not an SQLite file, or it is damaged. Choose another path, or restore "
            "the file from a backup"
        )
    if is_damage(error) or _primary(error) in (0, sqlite3.SQLITE_ERROR):  # no such table
        return _damaged(path, str(error))
    if _primary(error) in _FORBIDDEN:
        return _problem(
            f"{path} cannot be written ({error}). This user needs to write the file and its "
            "directory, for the write-ahead log"
        )
    return CheckpointError(f"{path}: {error}{advice(error)}")


def advice(error: Exception) -> str:
    """What the operator can do about an SQLite error, to append to a message."""
    return {
        sqlite3.SQLITE_FULL: ". Free some space: what was saved before is intact",
        sqlite3.SQLITE_BUSY: ". Another process holds a lock on it, perhaps an open sqlite3 shell",
        sqlite3.SQLITE_READONLY: ". The disk may have been remounted read-only",
        sqlite3.SQLITE_IOERR: ". Look at the disk",
    }.get(_primary(error), "")


def is_damage(error: Exception) -> bool:
    """Whether the file itself is damaged."""
    code = getattr(error, "sqlite_errorcode", None)
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return code == sqlite3.SQLITE_IOERR_SHORT_READ or _primary(error) in damage


def _primary(error: Exception) -> int:
    """The primary result code, the low byte of the extended one; 0 for Python's own errors."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _damaged(path: Path, found: str) -> ConfigurationError:
    return _problem(
        f"{path} is damaged ({' '.join(found.split())}). Restore it from a backup, recover it "
        "with the sqlite3 shell's '.recover', or remove it to start without positions"
    )


def _problem(message: str) -> ConfigurationError:
    return ConfigurationError(Problem("store.path", message))
