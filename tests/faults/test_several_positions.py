"""Handlers that store their own position: kills, a shared destination, and an invalid position.

``chaos`` tests several of them beside other handlers, over kills and clean stops.
"""

import sqlite3
from contextlib import closing

from tests.daemon import until
from tests.orders import Orders

SCOPES = {"orders": range(60), "users": range(100, 160)}
"""The documents that are inserted into the collection of each scope."""


def test_scopes_that_share_a_destination_each_have_a_position_there(orders: Orders) -> None:
    table = {
        "target": "tests.faults.chaos.destinations:Table",
        "options": {"name": "table", "per_thousand": 0},
        "batch_size": 7,
    }
    run = orders.daemon(
        targets={"table": table},
        scopes=[orders.scope(name=name, collection=name) for name in SCOPES],
        checkpoint={"interval_seconds": 0.3},
    )
    run.configuration["routes"] = [{"scope": name, "handlers": ["table"]} for name in SCOPES]

    def rows(scope: str) -> list[int]:
        with closing(sqlite3.connect(run.directory / "table.db")) as database:
            found = [n for (n,) in database.execute("SELECT document FROM arrivals ORDER BY id")]
        return [n for n in found if n in SCOPES[scope]]

    run.start()
    for first in range(0, 60, 20):
        for name, documents in SCOPES.items():
            orders.insert(*documents[first : first + 20], collection=name, n=0)
        until(lambda first=first: len(rows("users")) > first, "some rows")
        run.kill()
        run.start()
    for name in SCOPES:
        until(lambda name=name: len(rows(name)) >= 60, f"all rows of {name}")
    assert run.stop() == 0, run.log
    for name, documents in SCOPES.items():
        assert rows(name) == list(documents)


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
    error = run.halts()
    assert "the position that handler 'table' stored is not a position of this server" in error
