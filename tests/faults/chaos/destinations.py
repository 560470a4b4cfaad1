"""The service's handlers. Each stores what it received in a database in the working directory.

Some attempts fail and are retried, so that some event nearly always waits for its next attempt when
the service is told to stop.
"""

import random
import sqlite3
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import anyio

from tailrace import Batch, ChangeEvent, Fenced, ScopeContext

_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS arrivals (
    id INTEGER PRIMARY KEY, token TEXT, document INTEGER, operation TEXT, number INTEGER
);
CREATE TABLE IF NOT EXISTS position (scope TEXT PRIMARY KEY, text TEXT);
"""


def _may_fail(per_thousand: float) -> None:
    if random.random() * 1000 < per_thousand:
        if random.random() < 0.1:
            raise ConnectionError("the destination is down for this call")
        raise RuntimeError("this attempt fails")


class Destination:
    """A database of the events that arrived, and of a position if the handler owns it."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _database(self) -> sqlite3.Connection:
        # At the first call only, because the campaign imports this module too.
        database = sqlite3.connect(f"{self._name}.db", isolation_level=None)
        database.executescript(_TABLES)
        return database

    def store(self, events: Sequence[ChangeEvent], note: str = "") -> None:
        """Stores all events or none; with a batch, also its position."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        if isinstance(events, Batch):
            scope = events.scope.name
            if self.stored(scope) != events.former:
                database.execute("ROLLBACK")
                raise Fenced("another process has stored its position")
            position = (scope, events.position)
            database.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", position)
        database.executemany(
            "INSERT INTO arrivals (token, document, operation, number) VALUES (?, ?, ?, ?)",
            [_row(event, note) for event in events],
        )
        database.execute("COMMIT")

    def stored(self, scope: str) -> str | None:
        """The stored position."""
        query = "SELECT text FROM position WHERE scope = ?"
        row = self._database.execute(query, (scope,)).fetchone()
        return row and str(row[0])


class Table(Destination):
    """Stores its position with its data; ``per_thousand`` calls fail before, as many after it."""

    def __init__(self, name: str, per_thousand: float) -> None:
        super().__init__(name)
        self._per_thousand = per_thousand

    async def begin(self, scope: ScopeContext) -> str | None:
        return self.stored(scope.name)

    async def write(self, batch: Batch) -> None:
        _may_fail(self._per_thousand)
        await anyio.sleep(random.expovariate(1000))
        self.store(batch)
        _may_fail(self._per_thousand)  # stored, but the answer is lost

    async def on_ddl(self, event: ChangeEvent) -> None:
        """Stores a barrier once. It has no position, so it may come again."""
        token, _, operation, _ = _row(event, "")
        known = "SELECT 1 FROM arrivals WHERE token = ? AND operation = ?"
        if self._database.execute(known, (token, operation)).fetchone() is None:
            self.store([event])


_single = Destination("single")
_batch = Destination("batch")
_busy = set[Any]()


async def single(event: ChangeEvent) -> None:
    """Takes some time for one event. Documents may overlap; changes of one document must not."""
    _may_fail(3)
    document = (event.document_key or {}).get("_id")
    note = "overlapping " if document in _busy else ""
    _busy.add(document)
    # A few take longer than a checkpoint's interval, so one is nearly always in flight.
    slow = random.uniform(0, 0.6) if random.random() < 0.03 else 0
    await anyio.sleep(slow + random.expovariate(200))
    _single.store([event], note)
    _busy.discard(document)


async def batch(events: Sequence[ChangeEvent]) -> None:
    """Takes several events, and stores no position."""
    _may_fail(5)
    await anyio.sleep(random.expovariate(200))
    _batch.store(events)


def _row(event: ChangeEvent, note: str) -> tuple[str, int, str, int | None]:
    fields = event.full_document or (event.update_description or {}).get("updatedFields")
    document = (event.document_key or {}).get("_id", -1)
    operation = note + event.operation_type
    token = event.id.get("_data") or event.id["snapshot"]
    return token, document, operation, fields["n"] if fields else None
