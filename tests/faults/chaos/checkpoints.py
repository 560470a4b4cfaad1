"""The store of checkpoints, read from outside the service."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.daemon import until


def stored_token(path: Path, scope: str) -> str | None:
    """The token of the stored position, or ``None`` if the position is a time."""
    record = until(lambda: _record(path, scope), "the stored position")
    token = record["high_water"] or record["event_token"]
    return json.loads(token)["_data"] if token else None


def truncate_log(path: Path) -> None:
    """Empties the write-ahead log, so that the next save needs space on the disk."""

    def truncated() -> bool:
        with _opened(path, "rw") as connection:
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    until(truncated, "a log of no length")


def _record(path: Path, scope: str) -> dict[str, Any] | None:
    """The stored record, or ``None`` if it cannot be read at the moment."""
    try:
        with _opened(path, "ro") as connection:
            row = connection.execute(
                "SELECT document FROM checkpoints WHERE scope = ?", (scope,)
            ).fetchone()
    except sqlite3.OperationalError:
        return None
    return json.loads(row[0]) if row else None


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    uri = f"{path.as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        yield connection
