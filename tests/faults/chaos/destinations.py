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
import anyio.lowlevel
from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken, SinkPosition

_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS arrivals (
    id INTEGER PRIMARY KEY, token TEXT, document INTEGER, operation TEXT, number INTEGER
);
CREATE TABLE IF NOT EXISTS position (scope TEXT PRIMARY KEY, token TEXT, time INT, increment INT);
"""


def _may_fail(per_thousand: float) -> None:
    if random.random() * 1000 < per_thousand:
        raise ConnectionError("this attempt fails")


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

    def store(self, events: Sequence[ChangeEvent], note: str = "", scope: str = "") -> None:
        """Stores all events or none; with a scope, also the last event's position."""
        database = self._database
        last = next((each for each in reversed(events) if "_data" in each.id), None)
        database.execute("BEGIN IMMEDIATE")
        database.executemany(
            "INSERT INTO arrivals (token, document, operation, number) VALUES (?, ?, ?, ?)",
            [_row(event, note) for event in events],
        )
        if scope and last is not None and (time := last.cluster_time):
            position = (scope, last.id["_data"], time.time, time.inc)
            database.execute("INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?)", position)
        database.execute("COMMIT")

    async def position(self, scope: str) -> SinkPosition | None:
        """The stored position."""
        row = self._database.execute(
            "SELECT token, time, increment FROM position WHERE scope = ?", (scope,)
        ).fetchone()
        return row and SinkPosition(ResumeToken.of({"_data": row[0]}), Timestamp(*row[1:]))


class Table(Destination):
    """Owns its position, and takes several events at once."""

    async def __call__(self, events: Sequence[ChangeEvent], scope: str) -> None:
        _may_fail(5)
        await anyio.sleep(random.expovariate(1000))
        self.store(events, scope=scope)
        _may_fail(5)  # stored, but the answer is lost


class Ledger(Destination):
    """Owns its position, and takes one event after another."""

    async def __call__(self, event: ChangeEvent, scope: str) -> None:
        _may_fail(0.5)
        await anyio.lowlevel.checkpoint()
        self.store([event], scope=scope)
        _may_fail(0.5)


table = Table("table")
ledger = Ledger("ledger")
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
