"""Comparisons that answer from a temporary SQLite file of rows."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from tailrace.engine import HeldKey, HeldKeys, HeldRows, Row
from tailrace.event import ChangeEvent
from tailrace.event.document_key import key_text
from tailrace.model.snapshot import DocumentId

T = TypeVar("T")

MOST_BYTES = 16 * 1024 * 1024
"""The documents of an answer have about so many bytes at most, or it has one."""


def temporary_file(schema: str) -> sqlite3.Connection:
    """A database in a file that has no name, and goes when it is closed."""
    file = sqlite3.connect("", check_same_thread=False, isolation_level=None)
    file.executescript(schema)
    return file


def held_rows(rows: Iterable[tuple[Row | None, int]], count: int) -> HeldRows:
    """The rows of ``count`` keys, each with its bytes, up to about :data:`MOST_BYTES`."""
    held: list[Row | None] = []
    size = 0
    for row, length in rows:
        held.append(row)
        size += length
        if size > MOST_BYTES:
            break
    missing = count - len(held)
    return HeldRows(held + [None] * missing, whole=not missing)


def held_keys(rows: Sequence[tuple[bytes, bytes]], most: int) -> HeldKeys:
    """A page of at most ``most`` identities with their keys, in the order of the identities."""
    keys = [HeldKey(key_text(key), DocumentId(key)) for _, key in rows]
    return HeldKeys(keys, rows[-1][0].hex() if len(rows) == most else None)


class FileComparison:
    """What these comparisons share. ``make`` makes the rows of documents. Calls that block run in a
    thread, one after another."""

    def __init__(self, make: Callable[[Sequence[ChangeEvent]], Sequence[Row]]) -> None:
        self._make = make
        self._one_at_a_time = CapacityLimiter(1)

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        return await self._in_thread(lambda: self._make(documents))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        # Not abandoned: the file is closed when no thread uses it any more.
        return await to_thread.run_sync(call, limiter=self._one_at_a_time)
