"""Deletes, drops, renames and snapshots in tables of PostgreSQL, and the log."""

from typing import Any

import psycopg
import pytest
from bson import Timestamp

from tailrace import PermanentError, Refused
from tailrace.event import ChangeEvent
from tailrace.event.snapshot_events import barrier
from tailrace.testing import Changes
from tests.destinations.postgresql_store import Store, begin
from tests.handlers import deliver


async def test_an_update_without_its_document_is_no_row(store: Store, changes: Changes) -> None:
    handler = await store.opened()
    event = changes.insert({"_id": 1})
    gone = {**changes.update(1, {"a": 1}).document, "fullDocument": None}
    await deliver(handler, event, ChangeEvent.from_document(gone))
    assert store.orders == {}
    without = {name: value for name, value in gone.items() if name != "fullDocument"}
    with pytest.raises(Refused, match="it has no document"):
        await deliver(handler, ChangeEvent.from_document(without))


async def test_with_soft_delete_a_deleted_document_keeps_its_row(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(soft_delete=True)
    await deliver(handler, *[changes.insert({"_id": n}) for n in range(3)])
    delete = changes.delete(1)
    await deliver(handler, delete)
    deleted = "SELECT extract(epoch FROM deleted_at)::int FROM orders ORDER BY key"
    assert delete.cluster_time is not None
    assert store.server.query(deleted) == [(None,), (delete.cluster_time.time,), (None,)]
    await deliver(handler, changes.insert({"_id": 1}))
    assert store.server.query(deleted) == [(None,)] * 3
    drop = changes.drop()
    await deliver(handler, drop)
    assert drop.cluster_time is not None
    assert store.server.query(deleted) == [(drop.cluster_time.time,)] * 3


@pytest.mark.parametrize("ddl", ["follow", "keep", "refuse"])
async def test_a_drop_and_a_rename_follow_the_policy_of_ddl(
    store: Store, changes: Changes, ddl: str
) -> None:
    handler = await store.opened(ddl=ddl)
    old = changes.elsewhere("old")
    await deliver(handler, changes.insert({"_id": 1}), changes.insert({"_id": 2}))
    await deliver(handler, old.insert({"_id": 3}))
    rename, last = changes.rename("old"), old.insert({"_id": 4})
    drop = changes.elsewhere("old").drop()

    def keys(table: str) -> list[str]:
        return [key[-4] for (key,) in store.server.query("SELECT key FROM {} ORDER BY 1", table)]

    if ddl == "refuse":
        with pytest.raises(PermanentError, match=r"rename of shop\.orders, and ddl is 'refuse'"):
            await deliver(handler, rename)
        return
    await deliver(handler, rename)
    await deliver(handler, last)
    if ddl == "keep":
        assert (keys("orders"), keys("old")) == (["1", "2"], ["3", "4"])
        return
    assert (keys("orders"), keys("old")) == ([], ["1", "2", "4"])
    assert store.server.query("SELECT name FROM tailrace_tables") == [("old",)]
    await begin(handler)  # a crash: they come again
    await deliver(handler, rename)
    assert (keys("orders"), keys("old")) == ([], ["1", "2", "4"])
    await deliver(handler, drop)
    await deliver(handler, old.insert({"_id": 5}))
    await begin(handler)
    await deliver(handler, drop)
    assert keys("old") == ["5"]


@pytest.mark.parametrize("needed_by", ["a view", "a query"])
async def test_a_renamed_table_stays_empty_if_something_needs_it(
    store: Store, changes: Changes, needed_by: str
) -> None:
    handler = await store.opened()
    await deliver(handler, changes.insert({"_id": 1}))
    with psycopg.connect(store.server.dsn) as connection:
        view = "CREATE VIEW seen AS SELECT * FROM orders"
        connection.execute(view if needed_by == "a view" else "SELECT * FROM orders")
        if needed_by == "a view":
            connection.commit()
        await deliver(handler, changes.rename("old"))
    assert (len(store.orders), len(store.server.query("SELECT 1 FROM old"))) == (0, 1)
    assert len(store.server.query("SELECT 1 FROM tailrace_tables")) == 2


def snapshot_end(changes: Changes, began: Timestamp, **more: Any) -> ChangeEvent:
    listed = [{"db": "shop", "coll": "orders", "state": "done"}]
    snapshot = {"filter": "", "chosen": [], "collections": listed, "began": began, **more}
    (event,) = barrier("snapshotEnd", "s", changes.oplog.now, {"snapshot": snapshot}).events()
    return event


@pytest.mark.parametrize(
    ("more", "orders", "gone"),
    [
        ({}, [2, 3], []),
        ({"filter": "{}"}, [1, 2, 3], [1]),
        ({"chosen": ["orders"]}, [2, 3], [1]),
        ({"collections": [{"db": "shop", "coll": "orders", "state": "refused"}]}, [1, 2, 3], []),
    ],
    ids=str,
)
async def test_a_snapshot_sweeps_what_it_did_not_find(
    store: Store, changes: Changes, more: dict[str, Any], orders: list[int], gone: list[int]
) -> None:
    handler = await store.opened()
    other = changes.elsewhere("gone")
    await deliver(handler, changes.insert({"_id": 1}), changes.insert({"_id": 2}))
    await deliver(handler, other.insert({"_id": 1}))
    began = changes.insert({"_id": 3})
    await deliver(handler, changes.read(2))
    await deliver(handler, began)
    assert began.cluster_time is not None
    await deliver(handler, snapshot_end(changes, began.cluster_time, **more))
    assert sorted(each["_id"] for each in store.orders.values()) == orders
    rows = store.server.query("SELECT document -> '_id' FROM gone")
    assert rows == [(each,) for each in gone]


async def test_a_log_has_a_row_for_each_event_and_ddl_once(store: Store, changes: Changes) -> None:
    handler = await store.opened(log="changes")
    events = [changes.insert({"_id": 1}), changes.update(1, {"a": 1}), changes.delete(1)]
    await deliver(handler, *events)
    drop, invalidate = changes.drop(), changes.invalidate()
    end = snapshot_end(changes, changes.oplog.now)
    for event in (drop, invalidate, end, drop, invalidate, end):
        await begin(handler)
        await deliver(handler, event)
    rows = store.server.query(
        "SELECT id, scope, op, namespace, key, event -> '_id' ->> '_data' FROM changes "
        "ORDER BY position"
    )
    key = '{"_id":{"$numberInt":"1"}}'
    of_changes = [
        (each.id["_data"], "orders", operation, "shop.orders", key, each.id["_data"])
        for each, operation in zip(events, ("insert", "update", "delete"), strict=True)
    ]
    token = drop.id["_data"]
    assert rows[:4] == [*of_changes, (token, "orders", "drop", "shop.orders", None, token)]
    assert [row[2] for row in rows[4:]] == ["invalidate", "snapshotEnd"]
