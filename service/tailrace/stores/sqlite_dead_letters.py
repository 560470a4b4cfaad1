"""Dead letters in the SQLite store: one row per letter, numbered in the order of arrival.

A resolved letter stays, with ``how`` and ``resolved_at``. You may remove old ones::

    DELETE FROM dead_letters WHERE resolved_at < '2026-11-01';
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tailrace.errors import DeadLetterError
from tailrace.model.dead_letter import DeadLetter, How
from tailrace.stores.indexed_letters import IndexedLetters, Key
from tailrace.stores.records import letter_fenced, letter_record, read_letter
from tailrace.stores.sqlite_file import Result, SqliteFile

_COLUMNS = ("number", "scope", "handler", "letter", "key", "event", "error", "attempts", "at")

# The index "waiting" refuses a second row for an unresolved letter. One statement, so that no other
# process can claim the scope between the comparison and the write.
_ADD = """
INSERT INTO dead_letters (scope, handler, letter, key, event, error, attempts, at)
SELECT :scope, :handler, :letter, :key, :event, :error, :attempts, :at
WHERE NOT EXISTS (SELECT 1 FROM checkpoints WHERE scope = :scope AND epoch > :epoch)
ON CONFLICT DO NOTHING
"""
_CLAIMED = "SELECT epoch FROM checkpoints WHERE scope = ? AND epoch > ?"
_LETTERS = """
SELECT number, scope, handler, letter, key, event, error, attempts, at FROM dead_letters
WHERE resolved_at IS NULL AND (?1 IS NULL OR scope = ?1) AND (?2 IS NULL OR handler = ?2)
ORDER BY number
"""
_FIND = """
SELECT 1 FROM dead_letters
WHERE resolved_at IS NULL AND scope = ? AND handler = ? AND key = ? LIMIT 1
"""
_KEYS = """
SELECT DISTINCT scope, handler, key FROM dead_letters
WHERE resolved_at IS NULL AND (?1 IS NULL OR scope = ?1)
"""
_OF_KEY = """
SELECT number, scope, handler, letter, key, event, error, attempts, at FROM dead_letters
WHERE resolved_at IS NULL AND scope = ? AND handler = ? AND key = ? ORDER BY number
"""
_COUNT = """
SELECT scope, handler, count(*) FROM dead_letters WHERE resolved_at IS NULL GROUP BY scope, handler
"""
_RESOLVE = """
UPDATE dead_letters SET resolved_at = ?, how = ?
WHERE resolved_at IS NULL AND scope = ? AND handler = ? AND letter = ?
"""


class SqliteDeadLetters(IndexedLetters):
    """A :class:`tailrace.engine.ports.DeadLetterStore`."""

    def __init__(self, file: SqliteFile) -> None:
        super().__init__()
        self._file = file

    async def count(self) -> Mapping[tuple[str, str], int]:
        found = await self._run(_COUNT)
        return {(scope, handler): number for scope, handler, number in found.rows}

    async def letters(
        self, scope: str | None = None, handler: str | None = None
    ) -> Sequence[DeadLetter]:
        return self._read(await self._run(_LETTERS, (scope, handler)))

    async def resolve(self, letter: DeadLetter, how: How) -> bool:
        values = (datetime.now(UTC).isoformat(), how, *letter.identity)
        return (await self._run(_RESOLVE, values, _of(letter))).changed > 0

    async def _claim(self, scope: str, epoch: int) -> None:
        """Raises if the epoch is not the greatest: the checkpoint's epoch fences the letters."""
        for (claimed,) in (await self._run(_CLAIMED, (scope, epoch))).rows:
            raise letter_fenced(scope, epoch, claimed, where=str(self._file.path))

    async def _insert(self, letter: DeadLetter, epoch: int) -> None:
        values = letter_record(letter) | {"epoch": epoch}
        if not (await self._run(_ADD, values, _of(letter))).changed:
            await self._claim(letter.scope, epoch)  # if it does not raise, the letter is there

    async def _find(self, key: Key) -> bool:
        scope, handler, document = key
        return bool((await self._run(_FIND, (scope, handler, document or b""))).rows)

    async def _keys(self, scope: str | None) -> Iterable[Key]:
        found = await self._run(_KEYS, (scope,))
        return ((scope, handler, key or None) for scope, handler, key in found.rows)

    async def _letters_of(self, key: Key) -> Sequence[DeadLetter]:
        scope, handler, document = key
        return self._read(await self._run(_OF_KEY, (scope, handler, document or b"")))

    def _read(self, found: Result) -> Sequence[DeadLetter]:
        records = [dict(zip(_COLUMNS, row, strict=True)) for row in found.rows]
        return [
            read_letter(each, where=f"{self._file.path}, letter number {each['number']}")
            for each in records
        ]

    async def _run(self, sql: str, values: Any = (), where: str = "") -> Result:
        return await self._file.run(sql, values, where, DeadLetterError)


def _of(letter: DeadLetter) -> str:
    return f", scope {letter.scope!r}, handler {letter.handler!r}"
