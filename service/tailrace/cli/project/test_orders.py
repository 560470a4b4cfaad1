"""Tests of the handler. They need no server: run ``pytest``."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
from tailrace.testing import Harness

from orders import Orders


def test_the_table_has_the_current_orders(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"

    async def run() -> None:
        async with Harness(Orders, {"path": str(path)}) as harness:
            harness.outage()  # the destination does not answer the first call
            harness.changes.insert({"_id": "a", "state": "new"})
            harness.changes.insert({"_id": "b", "state": "new"})
            harness.changes.update("a", {"state": "paid"})
            harness.changes.delete("b")
            await harness.handled()

    anyio.run(run)
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT key, document FROM orders").fetchall()
    assert rows == [('{"_id":"a"}', '{"_id": "a", "state": "paid"}')]
