"""Handlers that store their own position: kills, a shared destination, and an invalid position.

``chaos`` tests several of them beside other handlers, over kills and clean stops.
"""

import sqlite3
from contextlib import closing

from tests.daemon import until
from tests.orders import Orders

# The destination is an SQLite database; PostgreSQL or any other would do the same.
TABLE = """
import asyncio
import json
import random
import sqlite3
from bson import Timestamp
from tailrace.model import SinkPosition


class Table:
    def __init__(self, name):
        self.database = sqlite3.connect(name, isolation_level=None)
        self.database.executescript(
            "PRAGMA synchronous = OFF;"  # no power is cut here
            "CREATE TABLE IF NOT EXISTS rows (scope TEXT, n INTEGER);"
            "CREATE TABLE IF NOT EXISTS position (scope TEXT PRIMARY KEY, id TEXT, s INT, i INT)"
        )

    async def __call__(self, events: list, scope):
        await asyncio.sleep(random.random() / 100)
        database, last = self.database, events[-1]
        database.execute("BEGIN IMMEDIATE")
        rows = [(scope, event.document_key["_id"]) for event in events]
        database.executemany("INSERT INTO rows VALUES (?, ?)", rows)
        time = last.cluster_time
        position = (scope, json.dumps(last.id), time.time, time.inc)
        database.execute("INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?)", position)
        database.execute("COMMIT")
        await asyncio.sleep(random.random() / 100)

    async def position(self, scope):
        found = self.database.execute(
            "SELECT id, s, i FROM position WHERE scope = ?", (scope,)
        ).fetchone()
        return found and SinkPosition(json.loads(found[0]), Timestamp(*found[1:]))


table = Table("table.db")
"""


def test_scopes_that_share_a_destination_each_have_a_position_there(orders: Orders) -> None:
    names = ("orders", "users")
    run = orders.daemon(
        targets={"table": {"target": "mine:table", "batch_size": 7}},
        source=TABLE,
        scopes=[orders.scope(name=name, collection=name) for name in names],
        checkpoint={"interval_seconds": 0.3},
    )
    run.configuration["routes"] = [{"scope": name, "handlers": ["table"]} for name in names]

    def rows(scope: str) -> list[int]:
        with closing(sqlite3.connect(run.directory / "table.db")) as database:
            found = database.execute("SELECT n FROM rows WHERE scope = ? ORDER BY rowid", (scope,))
            return [n for (n,) in found]

    run.start()
    for first in range(0, 60, 20):
        for name in names:
            orders.insert(*range(first, first + 20), collection=name)
        until(lambda first=first: len(rows("users")) > first, "some rows")
        run.kill()
        run.start()
    for name in names:
        until(lambda name=name: len(rows(name)) >= 60, f"all rows of {name}")
    assert run.stop() == 0, run.log
    for name in names:
        assert rows(name) == list(range(60)), name


FOREIGN = """
class Table:
    async def __call__(self, events: list): pass
    async def position(self, scope): return {"number": 5}


table = Table()
"""


def test_a_position_that_the_server_refuses_halts_the_scope_and_names_the_handler(
    orders: Orders,
) -> None:
    run = orders.daemon(targets={"table": {"target": "mine:table"}}, source=FOREIGN)
    run.start(ready=False)
    assert run.wait() == 1
    (halted,) = run.logged("scope.halted")
    assert "the position that handler 'table' stored is no resume token" in halted["error"]
