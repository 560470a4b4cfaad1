"""Dead letters in the SQLite store: a row for each, numbered in the order in which they came.

A letter that was resolved stays, with ``how`` and ``resolved_at``, as the record of what was set
aside. Remove old ones with the ``sqlite3`` shell::

    DELETE FROM dead_letters WHERE resolved_at < '2026-11-01';
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tailrace.errors import DeadLetterError
from tailrace.model.dead_letter import DeadLetter, How
from tailrace.stores.key_index import KeyIndex
from tailrace.stores.records import letter_record, read_letter
from tailrace.stores.sqlite_file import SqliteFile

_COLUMNS = ("scope", "handler", "letter", "key", "event", "error", "attempts", "at")

# The index "waiting" refuses a second row for a letter that waits.
_ADD = """
INSERT INTO dead_letters (scope, handler, letter, key, event, error, attempts, at)
VALUES (:scope, :handler, :letter, :key, :event, :error, :attempts, :at)
ON CONFLICT DO NOTHING
"""
_LETTERS = """
SELECT number, scope, handler, letter, key, event, error, attempts, at FROM dead_letters
WHERE resolved_at IS NULL AND (?1 IS NULL OR scope = ?1) AND (?2 IS NULL OR handler = ?2)
ORDER BY number
"""
_HOLDS = """
SELECT EXISTS (SELECT 1 FROM dead_letters
WHERE resolved_at IS NULL AND scope = ? AND handler = ? AND key = ?)
"""
_KEYS = """
SELECT DISTINCT scope, handler, key FROM dead_letters WHERE resolved_at IS NULL
"""
_COUNT = """
SELECT scope, handler, count(*) FROM dead_letters WHERE resolved_at IS NULL GROUP BY scope, handler
"""
_RESOLVE = """
UPDATE dead_letters SET resolved_at = ?, how = ?
WHERE resolved_at IS NULL AND scope = ? AND handler = ? AND letter = ?
"""


class SqliteDeadLetters:
    """A :class:`tailrace.engine.ports.DeadLetterStore`; the index changes in the file's thread."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._held = KeyIndex()

    async def add(self, letter: DeadLetter) -> None:
        """Stores it behind all others, once; on the disk when this returns.

        Raises :class:`tailrace.errors.DeadLetterError`; then nothing was stored.
        """
        record = letter_record(letter)

        def add(connection: sqlite3.Connection) -> None:
            connection.execute(_ADD, record)
            self._held.note(letter.scope, letter.handler, letter.key, held=True)

        where = f", scope {letter.scope!r}, handler {letter.handler!r}"
        await self._file.run(add, where, DeadLetterError)

    def held(self, scope: str, handler: str) -> Collection[bytes | None]:
        """Keys that have unresolved letters, as last known here."""
        return self._held.keys(scope, handler)

    async def holds(self, scope: str, handler: str, key: bytes | None) -> bool:
        """Whether the key has unresolved letters, by what is in the file now."""

        def ask(connection: sqlite3.Connection) -> bool:
            (found,) = connection.execute(_HOLDS, (scope, handler, key or b"")).fetchone()
            self._held.note(scope, handler, key, held=bool(found))
            return bool(found)

        return await self._file.run(ask, f", scope {scope!r}", DeadLetterError)

    async def refresh(self) -> None:
        """Reads which keys are held: another process may have added some."""

        def read(connection: sqlite3.Connection) -> None:
            rows = connection.execute(_KEYS).fetchall()
            self._held.replace((scope, handler, key or None) for scope, handler, key in rows)

        await self._file.run(read, "", DeadLetterError)

    async def count(self) -> Mapping[tuple[str, str], int]:
        """How many unresolved letters there are by scope and handler, by what is in the file."""

        def count(connection: sqlite3.Connection) -> Mapping[tuple[str, str], int]:
            return {(scope, handler): n for scope, handler, n in connection.execute(_COUNT)}

        return await self._file.run(count, "", DeadLetterError)

    async def letters(
        self, scope: str | None = None, handler: str | None = None
    ) -> Sequence[DeadLetter]:
        """Unresolved letters, in the order in which they came."""

        def read(connection: sqlite3.Connection) -> Sequence[DeadLetter]:
            return [self._read(row) for row in connection.execute(_LETTERS, (scope, handler))]

        return await self._file.run(read, "", DeadLetterError)

    async def resolve(self, letter: DeadLetter, how: How) -> bool:
        """Writes what became of it, durably; says whether it was still waiting."""

        def resolve(connection: sqlite3.Connection) -> bool:
            values = (datetime.now(UTC).isoformat(), how, *letter.identity)
            return connection.execute(_RESOLVE, values).rowcount > 0

        return await self._file.run(resolve, f", scope {letter.scope!r}", DeadLetterError)

    def _read(self, row: tuple[Any, ...]) -> DeadLetter:
        number, *values = row
        where = f"{self._file.path}, letter number {number}"
        return read_letter(dict(zip(_COLUMNS, values, strict=True)), where=where)
