"""Dead letters in the SQLite store: one row per letter, numbered in the order of arrival.

A resolved letter stays, with ``how`` and ``resolved_at``. You may remove old ones::

    DELETE FROM dead_letters WHERE resolved_at < '2026-11-01';
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tailrace.errors import DeadLetterError
from tailrace.model.dead_letter import DeadLetter, DiscardedLetter, How, LetterHead
from tailrace.stores.indexed_letters import IndexedLetters, Key
from tailrace.stores.records import (
    MOST_DISCARDED,
    last_discarded,
    letter_fenced,
    letter_record,
    read_head,
    read_letter,
)
from tailrace.stores.sqlite_file import Result, SqliteFile

_COLUMNS = ("number", "scope", "handler", "letter", "key", "error", "attempts", "at", "event")
_HEAD = "SELECT number, scope, handler, letter, key, error, attempts, at"

# The index "waiting" refuses a second row for an unresolved letter. One statement, so that no other
# process can claim the scope between the comparison and the write.
_ADD = """
INSERT INTO dead_letters (scope, handler, letter, key, event, error, attempts, at)
SELECT :scope, :handler, :letter, :key, :event, :error, :attempts, :at
WHERE NOT EXISTS (SELECT 1 FROM checkpoints WHERE scope = :scope AND epoch > :epoch)
ON CONFLICT DO NOTHING
"""
_CLAIMED = "SELECT epoch FROM checkpoints WHERE scope = ? AND epoch > ?"
_HEADS = f"""
{_HEAD} FROM dead_letters
WHERE resolved_at IS NULL AND number > ?1
AND (?2 IS NULL OR scope = ?2) AND (?3 IS NULL OR handler = ?3)
ORDER BY number LIMIT ?4
"""
_READ = f"{_HEAD}, event FROM dead_letters WHERE resolved_at IS NULL AND number = ?"
_FIND = """
SELECT 1 FROM dead_letters
WHERE resolved_at IS NULL AND scope = ? AND handler = ? AND key = ? LIMIT 1
"""
_KEYS = """
SELECT DISTINCT scope, handler, key FROM dead_letters WHERE resolved_at IS NULL AND scope = ?
"""
_QUEUE = f"""
{_HEAD} FROM dead_letters
WHERE resolved_at IS NULL AND scope = ? AND handler = ? AND key = ? ORDER BY number
"""
_COUNT = """
SELECT scope, handler, count(*) FROM dead_letters WHERE resolved_at IS NULL GROUP BY scope, handler
"""
_DISCARDED = """
SELECT key, letter, error, resolved_at FROM dead_letters
WHERE how = 'discarded' AND scope = ? AND handler = ? ORDER BY number DESC LIMIT ?
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

    async def heads(
        self,
        scope: str | None = None,
        handler: str | None = None,
        *,
        after: str = "",
        limit: int = 1000,
    ) -> Sequence[LetterHead]:
        values = (int(after or 0), scope, handler, limit)
        return self._heads(await self._run(_HEADS, values))

    async def queue(self, queue: Key) -> Sequence[LetterHead]:
        scope, handler, document = queue
        return self._heads(await self._run(_QUEUE, (scope, handler, document or b"")))

    async def read(self, head: LetterHead) -> DeadLetter | None:
        for row in (await self._run(_READ, (int(head.arrival),))).rows:
            record = dict(zip(_COLUMNS, row, strict=True))
            return read_letter(record, where=self._where(record))
        return None

    async def discarded(self, scope: str, handler: str) -> Mapping[bytes | None, DiscardedLetter]:
        rows = (await self._run(_DISCARDED, (scope, handler, MOST_DISCARDED))).rows
        return last_discarded(rows)

    async def resolve(self, letter: DeadLetter | LetterHead, how: How) -> bool:
        values = (datetime.now(UTC).isoformat(), how, *letter.identity)
        return (await self._run(_RESOLVE, values, _of(letter))).changed > 0

    async def _claim(self, scope: str, epoch: int) -> None:
        """Raises if the epoch is not the greatest: the checkpoint's epoch fences the letters."""
        for (claimed,) in (await self._run(_CLAIMED, (scope, epoch))).rows:
            raise letter_fenced(scope, epoch, claimed, where=str(self._file.path))

    async def _insert(self, letter: DeadLetter, epoch: int) -> None:
        values = letter_record(letter) | {"epoch": epoch}
        if not (await self._run(_ADD, values, _of(letter))).changed:
            await self._claim(letter.scope, epoch)  # if it does not raise, the dead letter is there

    async def _find(self, key: Key) -> bool:
        scope, handler, document = key
        return bool((await self._run(_FIND, (scope, handler, document or b""))).rows)

    async def _keys(self, scope: str) -> Iterable[Key]:
        found = await self._run(_KEYS, (scope,))
        return ((scope, handler, key or None) for scope, handler, key in found.rows)

    def _heads(self, found: Result) -> Sequence[LetterHead]:
        records = [dict(zip(_COLUMNS[:-1], row, strict=True)) for row in found.rows]
        return [
            read_head(each, f"{each['number']:019}", where=self._where(each)) for each in records
        ]

    def _where(self, record: Mapping[str, Any]) -> str:
        return f"{self._file.path}, letter number {record['number']}"

    async def _run(self, sql: str, values: Any = (), where: str = "") -> Result:
        return await self._file.run(sql, values, where, DeadLetterError)


def _of(letter: DeadLetter | LetterHead) -> str:
    return f", scope {letter.scope!r}, handler {letter.handler!r}"
