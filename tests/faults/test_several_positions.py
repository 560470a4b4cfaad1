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
import random
import sqlite3
from tailrace import Fenced

POSITION = "SELECT text FROM position WHERE scope = ?"


class Table:
    def __init__(self, path):
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.executescript(
            "PRAGMA synchronous = OFF;"  # no power is cut here
            "CREATE TABLE IF NOT EXISTS rows (scope TEXT, n INTEGER);"
            "CREATE TABLE IF NOT EXISTS position (scope TEXT PRIMARY KEY, text TEXT)"
        )

    def stored(self, scope):
        found = self.database.execute(POSITION, (scope.name,)).fetchone()
        return found and found[0]

    async def begin(self, scope):
        return self.stored(scope)

    async def write(self, batch):
        await asyncio.sleep(random.random() / 100)
        database, scope = self.database, batch.scope
        database.execute("BEGIN IMMEDIATE")
        if self.stored(scope) != batch.former:
            database.execute("ROLLBACK")
            raise Fenced("another process has stored its position")
        rows = [(scope.name, event.document_key["_id"]) for event in batch]
        database.executemany("INSERT INTO rows VALUES (?, ?)", rows)
        position = (scope.name, batch.position)
        database.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", position)
        database.execute("COMMIT")
        await asyncio.sleep(random.random() / 100)
"""


def test_scopes_that_share_a_destination_each_have_a_position_there(orders: Orders) -> None:
    names = ("orders", "users")
    run = orders.daemon(
        targets={
            "table": {"target": "mine:Table", "options": {"path": "table.db"}, "batch_size": 7}
        },
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
import json
from tailrace.model import SinkPosition


class Table:
    async def begin(self, scope):
        position = SinkPosition({"number": 5}).to_text()
        return json.dumps({"scope": scope.name, "cluster": "", "position": position})

    async def write(self, batch): pass
"""


def test_a_position_that_the_server_refuses_halts_the_scope_and_names_the_handler(
    orders: Orders,
) -> None:
    run = orders.daemon(targets={"table": {"target": "mine:Table"}}, source=FOREIGN)
    run.start(ready=False)
    assert run.wait() == 1
    (halted,) = run.logged("scope.halted")
    assert "the position that handler 'table' stored is not a resume token" in halted["error"]
