"""Tests of the handler. They need no server: run ``pytest``."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
from bson import json_util
from tailrace.testing import Harness, at_least_once

from orders import Orders


def test_the_table_has_the_current_orders(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"

    async def run() -> None:
        async with Harness(Orders, {"path": str(path)}) as harness:
            harness.changes.insert({"_id": "a", "state": "new"})
            harness.changes.insert({"_id": "b", "state": "new"})
            harness.changes.update("a", {"state": "paid"})
            harness.changes.delete("b")
            await harness.handled()

    anyio.run(run)
    assert stored(path) == {"a": {"_id": "a", "state": "paid"}}


def test_no_change_is_lost_whatever_happens(tmp_path: Path) -> None:
    """Tries a history of changes with outages, failures, kills and repetitions."""
    path = tmp_path / "orders.db"

    async def run() -> None:
        await at_least_once(Orders, {"path": str(path)}, holds=lambda: stored(path))

    anyio.run(run)


def stored(path: Path) -> dict[Any, dict[str, Any]]:
    """The documents of the table by their ``_id``."""
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT document FROM orders").fetchall()
    documents = [json_util.loads(document) for (document,) in rows]
    return {document["_id"]: document for document in documents}
