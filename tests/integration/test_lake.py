"""The lake behind the real daemon: every event once, in order, however the daemon ends."""

import json
from pathlib import Path
from typing import Any

import bson
import pytest

from tailrace.event.extended_json import to_json
from tests.daemon import Daemon, until
from tests.lake import landed, rebuilt, rows
from tests.orders import Orders


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def lands(orders: Orders, directory: str = "run", **more: Any) -> Daemon:
    """A daemon whose scope lands in a lake beside its directory."""
    settings = {"type": "parquet", "path": "../lake", "segment_seconds": 0.1, **more}
    routes = [{"scope": "orders", "handlers": ["lake"]}]
    return orders.daemon(directory, handlers={"lake": settings}, routes=routes)


def ids(lake: Path) -> list[Any]:
    if not (lake / "orders").exists():
        return []
    return [bson.decode(row["document_key"])["_id"] for row in rows(lake, "orders")]


def test_every_kind_of_event_beside_a_file(orders: Orders, lake: Path) -> None:
    """The lake has the events that the jsonl handler got, byte for byte and in the same order."""
    run = orders.daemon(
        scopes=[{"name": "shop", "database": orders.database, "full_document": "updateLookup"}],
        handlers={
            "file": {"type": "jsonl", "path": "events.jsonl", "json": "canonical"},
            "lake": {"type": "parquet", "path": str(lake), "segment_seconds": 60},
        },
        routes=[{"scope": "shop", "handlers": ["file", "lake"]}],
    ).start()
    with orders.server.client() as client:
        shop = client[orders.database]
        shop.orders.insert_many({"_id": n, "n": n} for n in range(50))
        shop.orders.update_one({"_id": 1}, {"$set": {"n": 2}, "$unset": {"x": 1}})
        shop.orders.replace_one({"_id": 2}, {"n": None})
        shop.orders.delete_one({"_id": 3})
        with client.start_session() as session, session.start_transaction():
            shop.orders.insert_many(({"_id": n} for n in range(100, 120)), session=session)
        shop.orders.rename("past")
        shop.past.drop()
    run.until_events(75)
    until(lambda: run.events()[-1]["operationType"] == "drop", "the drop")
    assert run.stop() == 0, "a drain writes what lingers"
    found = rows(lake, "shop")
    assert len(landed(lake, "shop")) == 1
    assert len(found) == len(run.events())
    for row, event in zip(found, run.events(), strict=True):
        elements = b"".join(rebuilt(row).values())
        document = (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"
        assert json.loads(to_json(document, canonical=True)) == event
    in_transaction = [row for row in found if row["extra"] and b"txnNumber" in row["extra"]]
    assert len(in_transaction) == 20


def test_a_transaction_is_never_divided(orders: Orders, lake: Path) -> None:
    run = lands(orders, segment_seconds=0.05, segment_rows=7).start()
    with orders.server.client() as client:
        collection = client[orders.database].orders
        for first in range(0, 100, 20):
            collection.insert_many({"_id": first + n} for n in range(5))
            inside = [{"_id": first + n} for n in range(5, 20)]
            with client.start_session() as session, session.start_transaction():
                collection.insert_many(inside, session=session)
    until(lambda: len(ids(lake)) == 100, "all events")
    assert run.stop() == 0
    numbers: dict[Any, set[int]] = {}
    for row in rows(lake, "orders"):
        if row["extra"] is not None:
            transaction = bson.decode(row["extra"])["txnNumber"], row["cluster_seconds"]
            numbers.setdefault((*transaction, row["cluster_increment"]), set()).add(row["segment"])
    assert len(numbers) == 5
    assert all(len(of_one) == 1 for of_one in numbers.values())
