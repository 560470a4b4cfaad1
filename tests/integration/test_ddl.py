"""DDL events of collections, indexes and databases, and special collections, on a real server."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.orders import Orders


def following(orders: Orders, **scope: Any) -> Daemon:
    """A daemon on the whole database."""
    shown = {"name": "orders", "database": orders.database, "max_await_time_ms": 200}
    handlers = {"file": {"type": "jsonl", "path": "events.jsonl", "json": "relaxed"}}
    return orders.daemon(scopes=[{**shown, **scope}], handlers=handlers).start()


def operations(run: Daemon) -> list[tuple[str, str | None]]:
    """The operation and collection of each event."""
    return [(event["operationType"], event.get("ns", {}).get("coll")) for event in run.events()]


@pytest.mark.parametrize("expanded", [True, False], ids=["expanded", "plain"])
def test_show_expanded_events_adds_the_ddl_of_a_collection(orders: Orders, expanded: bool) -> None:
    run = following(orders, show_expanded_events=expanded)
    with orders.server.client() as client:
        shop = client[orders.database]
        shop.create_collection("orders", collation={"locale": "de"})
        shop.orders.create_index("n", name="by_n")
        shop.orders.insert_one({"_id": 1, "n": 1})
        shop.command("collMod", "orders", index={"name": "by_n", "hidden": True})
        shop.orders.drop_index("by_n")
        shop.orders.rename("old")
        shop.old.drop()
        client.drop_database(orders.database)
        until(lambda: operations(run)[-1:] == [("invalidate", None)], "the database's end")
        # The scope continues after them.
        shop.orders.insert_one({"_id": 2})
        until(lambda: 2 in run.ids(), "the next event")
    kinds = "create createIndexes insert modify dropIndexes rename"
    expected: list[tuple[str, str | None]] = [(kind, "orders") for kind in kinds.split()]
    expected += [("drop", "old"), ("dropDatabase", None), ("invalidate", None)]
    expected += [("create", "orders"), ("insert", "orders")]
    only_expanded = {"create", "createIndexes", "modify", "dropIndexes"}
    assert operations(run) == [
        each for each in expected if expanded or each[0] not in only_expanded
    ]
    if expanded:
        create, indexes, *_ = run.events()
        assert create["operationDescription"]["collation"]["locale"] == "de"
        assert indexes["operationDescription"]["indexes"][0]["name"] == "by_n"
    assert run.stop() == 0
    assert "Traceback" not in run.log


def test_views_and_time_series_send_no_documents(orders: Orders) -> None:
    """A view has events for its creation and drop only; a time series has none for its buckets."""
    run = following(orders, show_expanded_events=True)
    with orders.server.client() as client:
        shop = client[orders.database]
        shop.create_collection("orders")
        shop.create_collection("large", viewOn="orders", pipeline=[{"$match": {"n": {"$gt": 5}}}])
        shop.create_collection("measured", timeseries={"timeField": "at"})
        shop.orders.insert_one({"_id": 1, "n": 9})
        shop.measured.insert_one({"at": datetime.now(UTC), "value": 1})
        shop.large.drop()
        shop.measured.drop()
        shop.orders.insert_one({"_id": 2, "n": 9})
    until(lambda: 2 in run.ids(), "the last event")
    assert run.stop() == 0
    assert run.ids() == [1, 2]
    assert ("create", "large") in operations(run)
    assert ("drop", "large") in operations(run)
    assert {name for kind, name in operations(run) if kind == "insert"} == {"orders"}


def test_capped_and_clustered_collections_and_any_id_are_followed(orders: Orders) -> None:
    """Documents that a capped collection evicts are deleted; ids of every type arrive unchanged."""
    run = following(orders)
    keys: list[Any] = [1, "text", True, None, 1.5, {"a": 1, "b": [2]}, datetime(2026, 1, 1)]
    with orders.server.client() as client:
        shop = client[orders.database]
        shop.create_collection("capped", capped=True, size=4096, max=2)
        clustered = {"key": {"_id": 1}, "unique": True}
        shop.create_collection("clustered", clusteredIndex=clustered)
        for number in range(5):
            shop.capped.insert_one({"_id": number})
        for number in range(3):
            shop.clustered.insert_one({"_id": number})
        shop.clustered.delete_one({"_id": 1})
        shop.keys.insert_many([{"_id": key} for key in keys])
        until(lambda: len(run.events()) == 12 + len(keys), "every event")
        assert shop.capped.count_documents({}) == 2
    assert run.stop() == 0
    assert sorted(operations(run)[:8]) == [("delete", "capped")] * 3 + [("insert", "capped")] * 5
    assert operations(run)[8:12] == [("insert", "clustered")] * 3 + [("delete", "clustered")]
    shown = [event["documentKey"]["_id"] for event in run.events()[12:]]
    assert shown == [*keys[:-1], {"$date": "2026-01-01T00:00:00Z"}]
