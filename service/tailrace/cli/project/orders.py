"""A handler: keeps the current orders in an SQLite table. Put your own destination in its place."""

import sqlite3
from pathlib import Path
from typing import Self

from bson import json_util
from tailrace import Batch, ChangeEvent

CREATE = "CREATE TABLE IF NOT EXISTS orders (key TEXT PRIMARY KEY, document TEXT)"


class Orders:
    """config.yaml names this class; its ``options`` are the arguments of the constructor."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def __aenter__(self) -> Self:
        """Opens the destination, before the first event."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(self._path)
        self._database.execute(CREATE)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Closes it, after the last event."""
        self._database.close()

    async def write(self, batch: Batch) -> None:
        """Stores a batch. After a failure it comes again, so a repetition must be harmless.

        SQLite's calls block, but only briefly. Await the calls of a slower destination.
        """
        with self._database:  # one transaction
            for event in batch.latest():
                key, document = event.key_text, event.full_document
                if document is None:  # it was deleted
                    self._database.execute("DELETE FROM orders WHERE key = ?", (key,))
                else:
                    row = key, json_util.dumps(document)
                    self._database.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", row)

    async def on_ddl(self, event: ChangeEvent) -> None:
        """Gets the events that are not about one document, such as ``drop``."""
        if event.operation_type == "drop":
            with self._database:
                self._database.execute("DELETE FROM orders")
