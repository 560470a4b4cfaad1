"""Handlers that own their position take each row of a snapshot once, beside any other handlers.

The process is killed while they, a lake and a handler without a position are at different rows.
"""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any

import bson

from tailrace.event import ChangeEvent
from tests.daemon import Daemon, until
from tests.faults.test_snapshot_kills import Handled
from tests.lake import rows as landed
from tests.mongod import Client
from tests.orders import Orders
from tests.snapshots import fold, source
from tests.writers import Writers, mixed_ids

# The destinations are SQLite databases; PostgreSQL or any other would do the same.
TABLES = """
import asyncio
import random
import sqlite3
from tailrace import Fenced


class Table:
    def __init__(self, path):
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.executescript(
            "PRAGMA synchronous = OFF;"  # no power is cut here
            "CREATE TABLE IF NOT EXISTS events (event BLOB);"
            "CREATE TABLE IF NOT EXISTS position (text TEXT)"
        )

    def stored(self):
        found = self.database.execute("SELECT text FROM position").fetchone()
        return found and found[0]

    async def begin(self, scope):
        return self.stored()

    async def write(self, batch):
        assert len({event.operation_type == "read" for event in batch}) == 1
        await asyncio.sleep(random.random() / 20)
        database = self.database
        database.execute("BEGIN IMMEDIATE")
        if self.stored() != batch.former:
            database.execute("ROLLBACK")
            raise Fenced("another process has stored its position")
        raw = [(event.raw,) for event in batch]
        database.executemany("INSERT INTO events VALUES (?)", raw)
        database.execute("DELETE FROM position")
        database.execute("INSERT INTO position VALUES (?)", (batch.position,))
        database.execute("COMMIT")
        await asyncio.sleep(random.random() / 50)
        if random.random() < 0.1:
            raise OSError("the answer was lost")


async def keep(events: list):
    with open("handled", "ab") as file:
        file.write(b"".join(event.raw for event in events))
"""
NAMES = ("a", "b", "collated", "clustered")
IDS = mixed_ids(800)
ROWS = {"a": IDS[:300], "b": IDS[200:260], "collated": IDS[:120], "clustered": IDS[:90]}


def fill(client: Client, database: str) -> None:
    client[database].create_collection("collated", collation={"locale": "de", "strength": 1})
    clustered = {"key": {"_id": 1}, "unique": True}
    client[database].create_collection("clustered", clusteredIndex=clustered)
    for name, ids in ROWS.items():
        client[database][name].insert_many([{"_id": each, "v": 0} for each in ids])


def stored(run: Daemon, name: str) -> list[ChangeEvent]:
    """The rows of a table, in order."""
    found = selected(run, name, "SELECT event FROM events ORDER BY rowid")
    return [ChangeEvent.from_raw(raw) for (raw,) in found]


def selected(run: Daemon, name: str, statement: str) -> list[tuple[Any]]:
    with closing(sqlite3.connect(run.directory / name)) as database:
        try:
            return database.execute(statement).fetchall()
        except sqlite3.OperationalError:  # the table is not created yet
            return []


def until_rows(run: Daemon, count: int) -> None:
    """Waits until the first table has more rows."""
    statement = f"SELECT 1 FROM events LIMIT 1 OFFSET {count}"
    until(lambda: selected(run, "one.db", statement), f"{count} rows")


def until_end(run: Daemon) -> None:
    """Waits until the last change has arrived at one handler. A stop drains the others."""
    last = "SELECT event FROM events ORDER BY rowid DESC LIMIT 1"
    until(
        lambda: has_end([ChangeEvent.from_raw(*row) for row in selected(run, "one.db", last)]),
        "the end",
    )
    assert run.stop() == 0


SIZES = {"one": ("Table", 7), "two": ("Table", 30), "plain": ("keep", 11)}
LARGE = {"one": ("Table", 400), "plain": ("keep", 100)}


def daemon(orders: Orders, lake: Any, targets: Mapping[str, Any], **snapshot: Any) -> Daemon:
    snapshot = {"mode": "initial", "chunk_documents": 20, "documents_per_second": 250} | snapshot
    scope = {"name": "all", "database": orders.database, "max_await_time_ms": 100}
    handlers: dict[str, Any] = {
        name: {"type": "python", "target": f"mine:{target}", "batch_size": size}
        for name, (target, size) in targets.items()
    }
    for name in handlers.keys() & {"one", "two"}:
        handlers[name]["options"] = {"path": f"{name}.db"}
    handlers["lake"] = {"type": "parquet", "path": str(lake), "segment_seconds": 0.4}
    return orders.daemon(
        source=TABLES,
        scopes=[{**scope, "snapshot": snapshot}],
        handlers=handlers,
        routes=[{"scope": "all", "handlers": list(handlers)}],
        checkpoint={"interval_seconds": 0.5},
        delivery={"retry": {"first_seconds": 0.01}},
    )


def test_each_row_of_a_snapshot_is_stored_once(orders: Orders, tmp_path: Any) -> None:
    lake = tmp_path / "lake"
    run = daemon(orders, lake, SIZES, parallel=3)
    plain = Handled(run.directory / "handled")
    with orders.server.client() as client:
        fill(client, orders.database)
        behind, database = partial(run.is_behind, "all"), orders.database
        with Writers(client, database, NAMES, IDS, 2, pause=0.02, behind=behind):
            for count in (1, 150, 400):
                run.start(ready=False)
                until_rows(run, count)
                run.kill()
            run.start()
            run.until_copied("all")
        client[orders.database].a.insert_one({"_id": "the end"})
        until_end(run)
        there = source(client, orders.database, NAMES)
    assert fold(plain.events()) == there
    for name in ("one.db", "two.db"):
        events = stored(run, name)
        check_once(name, [event.token.raw for event in events])
        assert fold(events) == there, name
        times = [event.cluster_time for event in events]
        assert all(one <= other for one, other in pairwise(times) if one and other), name
    check_once("lake", [row["token"] for row in landed_to_the_end(lake)])
    again = [event.token for event in Handled(run.directory / "handled").events()]
    assert len(set(again)) < len(again)  # the handler without a position shows that rows came again


def test_each_row_of_several_ranges_is_stored_once(orders: Orders, tmp_path: Any) -> None:
    """The collection is divided: each range is at another position when the process is killed."""
    lake, ids = tmp_path / "lake", mixed_ids(12_000)
    run = daemon(orders, lake, LARGE, parallel=2, chunk_documents=300, documents_per_second=6000)
    plain = Handled(run.directory / "handled")
    with orders.server.client() as client:
        client[orders.database].a.insert_many([{"_id": each, "v": 0} for each in ids])
        behind, database = partial(run.is_behind, "all"), orders.database
        with Writers(client, database, ["a"], ids, seed=3, pause=0.02, behind=behind):
            for count in (500, 3500, 7000):
                run.start(ready=False)
                until_rows(run, count)
                run.kill()
            run.start()
            run.until_copied("all")
        client[orders.database].a.insert_one({"_id": "the end"})
        until_end(run)
        there = source(client, orders.database, ["a"])
    events, again = stored(run, "one.db"), [event.token for event in plain.events()]
    assert fold(events) == there
    check_once("one", [event.token.raw for event in events])
    check_once("lake", [row["token"] for row in landed_to_the_end(lake)])
    assert {event.id["range"] for event in events if "range" in event.id} == {1}
    assert len(set(again)) < len(again)


def has_end(events: list[ChangeEvent]) -> bool:
    return any(event.document_key == {"_id": "the end"} for event in events)


def landed_to_the_end(lake: Any) -> list[dict[str, Any]]:
    rows = landed(lake, "all")
    assert has_end([event_of(row) for row in rows])
    return rows


def event_of(row: dict[str, Any]) -> ChangeEvent:
    key = bson.decode(row["document_key"]) if row["document_key"] else None
    return ChangeEvent.from_document({"_id": {}, "operationType": "insert", "documentKey": key})


def check_once(name: str, tokens: list[bytes]) -> None:
    again = [bson.decode(each) for each, count in Counter(tokens).items() if count > 1]
    assert not again, (name, again[:5])
