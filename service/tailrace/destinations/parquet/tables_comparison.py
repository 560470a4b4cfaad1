"""Compares the tables ``current`` that a pipeline has made of a lake.

Each file of a table is read once into a temporary file. A table has what was published: a segment
of the lake says up to where, and what has changed since is in flux.
"""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from bson.timestamp import Timestamp

from tailrace.destination import (
    Comparison,
    DocumentId,
    HeldKeys,
    HeldRows,
    Namespace,
)
from tailrace.destination.document_row import JsonRow
from tailrace.destination.tables import CurrentTable, CurrentTables
from tailrace.destination.temporary_rows import (
    FileComparison,
    held_keys,
    held_rows,
    temporary_file,
)
from tailrace.destinations.parquet.comparison import row_maker
from tailrace.event.document_key import identity
from tailrace.event.key import read_key_text
from tailrace.event.snapshot_events import READ, SNAPSHOT_BEGIN, SNAPSHOT_END
from tailrace.lake.segment import Documents, segment_name
from tailrace.lake.segment_reader import segment_rows
from tailrace.lake.writable_lake import WritableLake
from tailrace.model import Scope

_CHANGE = ("operation", "cluster_seconds", "cluster_increment")
_OF_SNAPSHOTS = frozenset({READ, SNAPSHOT_BEGIN, SNAPSHOT_END})

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE rows (place TEXT, file TEXT, id BLOB, key BLOB, document TEXT);
CREATE INDEX by_id ON rows (place, id);
CREATE INDEX by_file ON rows (file);
"""


@dataclass(slots=True)
class TableRows:
    """The rows of the newest version of each table. Its methods block."""

    tables: CurrentTables
    scope: Scope
    _file: sqlite3.Connection = field(default_factory=partial(temporary_file, _SCHEMA))
    _files: dict[Namespace, set[str]] = field(default_factory=dict)

    def close(self) -> None:
        """Removes the file."""
        self._file.close()

    def first(self) -> list[Namespace]:
        """The collections that have tables."""
        names = self.tables.collections()
        return [Namespace(*name) for name in names if self.scope.covers(*name)]

    def load(self, of: Namespace) -> CurrentTable | None:
        """Reads what is new in the table of a collection."""
        table = self.tables.current(of.db, of.coll or "")
        files = set(table.files) if table is not None else set()
        known = self._files.setdefault(of, set())
        self._file.execute("BEGIN")
        for name in known - files:
            self._file.execute("DELETE FROM rows WHERE file = ?", (name,))
        for name in files - known:
            assert table is not None  # noqa: S101 - for the type checker
            for text, document in table.rows(name):
                if document is not None:  # else it is not known yet
                    key = read_key_text(text)[1]
                    values = str(of), name, identity(key, 0), key, document
                    self._file.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", values)
        self._file.execute("COMMIT")
        self._files[of] = files
        return table

    def rows(self, of: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        """The documents with these keys. The order of their fields does not count."""
        sql, where = "SELECT document FROM rows WHERE place = ? AND id = ?", str(of)
        found = (self._file.execute(sql, (where, identity(key.raw, 0))).fetchone() for key in keys)
        rows = (
            (None, 0) if one is None else (JsonRow(one[0], in_order=False), len(one[0]))
            for one in found
        )
        return held_rows(rows, len(keys))

    def keys(self, of: Namespace, after: str | None, most: int) -> HeldKeys:
        """The next ``most`` keys."""
        sql = "SELECT id, key FROM rows WHERE place = ? AND id > ? ORDER BY id LIMIT ?"
        values = str(of), bytes.fromhex(after or ""), most
        rows = self._file.execute(sql, values).fetchall()
        return held_keys(rows, most)


class TablesComparison(FileComparison):
    """Implements :class:`tailrace.destination.Comparison`."""

    def __init__(self, rows: TableRows, lake: WritableLake) -> None:
        make = row_maker(Documents.CANONICAL)
        super().__init__(lambda documents: [make(each) for each in documents])
        self._rows = rows
        self._lake = lake
        self._scope = rows.scope.name
        self._empty = set[int]()

    async def load(self) -> None:
        """Reads the tables that exist."""
        for collection in await self._in_thread(self._rows.first):
            await self._in_thread(partial(self._rows.load, collection))

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        return await self._in_thread(partial(self._stored, collection, keys))

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        await self._in_thread(partial(self._rows.load, collection))
        return await self._in_thread(partial(self._rows.keys, collection, after, most))

    def _stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        published = self._rows.tables.published(self._scope)  # first: tables have that, or more
        table = self._rows.load(collection)
        note = f"there is no table current of {collection}"
        if table is not None:
            published = max(published, table.segment(self._scope))
            note = f"compared: {table.name}"
            if table.incomplete:
                note += f", which is incomplete ({table.incomplete})"
        held = self._rows.rows(collection, keys)
        since = None if self._is_all(published) else self._since(published)
        return replace(held, since=since, note=note)

    def _is_all(self, published: int) -> bool:
        """Whether no event was landed after a segment."""
        for number in reversed(self._lake.segments(self._scope)):
            if number <= published:
                break
            if number not in self._empty and self._lake.footer(self._scope, number).rows:
                return False
            self._empty.add(number)
        return True

    def _since(self, published: int) -> Timestamp | None:
        """The time of the last change up to a segment, or else of the first one after it; ``None``
        if there is no change, only rows of a snapshot."""
        footer = self._lake.footer(self._scope, published)
        if footer.token is not None:
            return footer.cluster_time or footer.token.cluster_time
        for number in self._lake.segments(self._scope):
            if number > published and self._lake.footer(self._scope, number).token is not None:
                name, where = segment_name(number), self._lake.where(self._scope, number)
                data = self._lake.storage.read(f"{self._scope}/{name}")
                for operation, seconds, increment in segment_rows(data, _CHANGE, where):
                    if operation not in _OF_SNAPSHOTS and seconds is not None:
                        return Timestamp(seconds, increment)
        return None


@asynccontextmanager
async def tables_comparison(
    tables: CurrentTables, scope: Scope, lake: WritableLake
) -> AsyncIterator[Comparison]:
    """Reads the tables, and removes what was made of them afterwards."""
    rows = TableRows(tables, scope)
    try:
        comparison = TablesComparison(rows, lake)
        await comparison.load()
        yield comparison
    finally:
        rows.close()
