"""Keys whose end is still to be shown: a row or an insert gave their ``_id`` another numeric type.

The server takes ``1``, ``1.0`` and ``NumberLong(1)`` for one ``_id``, while a table has a key for
each. A deletion comes between them, unless a gap lost it, or a row of a snapshot is ahead of it.
Then the later event, which tells its own effect, shows only the new key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.event.namespace import Namespace

_SCHEMA = "CREATE TABLE replaced (db TEXT, coll TEXT, key TEXT, PRIMARY KEY (db, coll, key))"
_ADD = "INSERT OR IGNORE INTO replaced VALUES (?, ?, ?)"
_REMOVE = "DELETE FROM replaced WHERE (db, coll, key) = (?, ?, ?)"


@dataclass(slots=True)
class ReplacedKeys:
    """Rarely any; in the file of the documents, because a gap may have hidden millions."""

    file: sqlite3.Connection
    _some: bool = False

    def __post_init__(self) -> None:
        self.file.execute(_SCHEMA)

    def add(self, of: Namespace, key: str) -> None:
        self.file.execute(_ADD, (of.db, of.coll, key))
        self._some = True

    def remove(self, of: Namespace, key: str) -> None:
        """The key has an effect of its own."""
        if self._some:
            self.file.execute(_REMOVE, (of.db, of.coll, key))

    def taken(self) -> Iterator[tuple[Namespace, str]]:
        """All of them, which are forgotten then."""
        if self._some:
            for db, coll, key in self.file.execute("SELECT db, coll, key FROM replaced"):
                yield Namespace(db, coll), key
            self.clear()

    def clear(self) -> None:
        if self._some:
            self.file.execute("DELETE FROM replaced")
            self._some = False
