"""Tests of the handler. They need no server: run ``pytest``."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import structlog
from prometheus_client import CollectorRegistry
from tailrace import Batch, ChangeEvent, ScopeContext

from orders import Orders


def test_the_table_has_the_current_orders(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    scope = ScopeContext("orders", 1, 1, structlog.get_logger(), CollectorRegistry())
    events = [
        change("insert", "a", {"_id": "a", "state": "new"}),
        change("insert", "b", {"_id": "b", "state": "new"}),
        change("update", "a", {"_id": "a", "state": "paid"}),
        change("delete", "b"),
    ]

    async def run() -> None:
        async with Orders(str(path)) as orders:
            await orders.write(Batch(events[:3], scope))
            await orders.write(Batch(events[1:], scope))  # as after a crash: some come again

    anyio.run(run)
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT key, document FROM orders").fetchall()
    assert rows == [('{"_id":"a"}', '{"_id": "a", "state": "paid"}')]


def change(operation: str, key: str, document: dict[str, str] | None = None) -> ChangeEvent:
    event = {"_id": {"_data": "82"}, "operationType": operation, "documentKey": {"_id": key}}
    return ChangeEvent.from_document(event | ({"fullDocument": document} if document else {}))
