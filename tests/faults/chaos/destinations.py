"""The service's handlers: each keeps what it got, in a database of the directory that it runs in.

Some attempts fail, and are tried again: so there is nearly always something that waits for its next
attempt when the service is told to stop.
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
    """A database of what arrived, and of a position where there is one."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _database(self) -> sqlite3.Connection:
        # At the first call only: the campaign imports this module too.
        database = sqlite3.connect(f"{self._name}.db", isolation_level=None)
        database.executescript(_TABLES)
        return database

    def store(self, events: Sequence[ChangeEvent], note: str = "", scope: str = "") -> None:
        """Keeps the events, and the last one's position if it is told a scope, or nothing."""
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
        """What was stored last."""
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
        _may_fail(5)  # stored, and the answer is lost


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
    """Takes its time for one event: documents overlap, changes of one must not."""
    _may_fail(3)
    document = (event.document_key or {}).get("_id")
    note = "overlapping " if document in _busy else ""
    _busy.add(document)
    # A few take longer than a checkpoint's interval: there is nearly always one in flight.
    slow = random.uniform(0, 0.6) if random.random() < 0.03 else 0
    await anyio.sleep(slow + random.expovariate(200))
    _single.store([event], note)
    _busy.discard(document)


async def batch(events: Sequence[ChangeEvent]) -> None:
    """Takes several events, and keeps no position."""
    _may_fail(5)
    await anyio.sleep(random.expovariate(200))
    _batch.store(events)


def _row(event: ChangeEvent, note: str) -> tuple[str, int, str, int | None]:
    fields = event.full_document or (event.update_description or {}).get("updatedFields")
    document = (event.document_key or {}).get("_id", -1)
    operation = note + event.operation_type
    token = event.id.get("_data") or event.id["snapshot"]
    return token, document, operation, fields["n"] if fields else None
