"""Files of the SQLite store, and faults of them."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Holds the file's write lock in another connection during the block, or until released."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def execute(path: Path, sql: str, *values: object) -> None:
    """Executes statements, as a person in the sqlite3 shell would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


def damage(path: Path) -> None:
    """Overwrites the content of every page but the first, in place."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for page in range(4096, size, 4096):
            file.seek(page)
            file.write(b"\xa5" * 2048)
