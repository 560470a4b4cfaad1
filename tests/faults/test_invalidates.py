"""The end of a collection or a database: followed beyond, stopped at, and never a spin."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Any

from tests.daemon import Daemon, Make, until
from tests.load import assert_whole
from tests.mongod import ReplicaSet
from tests.scripted import ScriptedSet


def scope(name: str, database: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "database": database, "max_await_time_ms": 200, **more}


def files(*names: str) -> dict[str, Any]:
    """Sections that lead each scope into a file of its own."""
    handlers = {n: {"type": "jsonl", "path": f"{n}.jsonl", "json": "canonical"} for n in names}
    return {"handlers": handlers, "routes": [{"scope": n, "handlers": [n]} for n in names]}


def until_last(run: Daemon, name: str, number: int) -> None:
    until(lambda: run.ids(name)[-1:] == [number], f"event {number} in {name}")


def kinds(run: Daemon, name: str) -> list[str]:
    return [event["operationType"] for event in run.events(f"{name}.jsonl")]


def of(all_kinds: Iterable[str], *wanted: str) -> list[str]:
    return [kind for kind in all_kinds if kind in wanted]


def test_both_scopes_go_on_behind_drops_renames_and_a_dropped_database(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    scopes = [scope("collection", database, collection="orders"), scope("whole", database)]
    run = daemon(mongod.uri, scopes=scopes, **files("collection", "whole")).start()
    with mongod.client() as client:
        orders = client[database].orders

        def insert(number: int) -> None:
            orders.insert_one({"_id": number})
            for name in ("collection", "whole"):
                until_last(run, f"{name}.jsonl", number)

        insert(0)
        orders.drop()
        insert(1)
        orders.rename("old")
        insert(2)
        client.drop_database(database)
        insert(3)
        run.signal(signal.SIGKILL)
        run.wait()
        client.drop_database(database)
        orders.insert_one({"_id": 4})
        run.start()
        insert(5)
        assert run.get("/readyz")[0] == 200
        assert run.stop() == 0
    for name in ("collection", "whole"):
        seen = list(dict.fromkeys(run.ids(f"{name}.jsonl")))
        assert seen == [0, 1, 2, 3, 4, 5], name
    assert kinds(run, "collection").count("invalidate") >= 4
    # A database goes on behind drops and renames of its collections.
    ends = of(kinds(run, "whole"), "drop", "rename", "invalidate")
    assert ends[:2] == ["drop", "rename"]
    assert ends.count("invalidate") >= 2
    assert "Traceback" not in run.log


def test_a_scope_that_stops_at_its_invalidate_leaves_the_others_running(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    names = ("orders", "customers")
    scopes = [scope(name, database, collection=name, on_invalidate="stop") for name in names]
    run = daemon(mongod.uri, scopes=scopes, **files(*names)).start()
    with mongod.client() as client:
        shop = client[database]
        shop.orders.insert_one({"_id": 0})
        shop.orders.drop()
        until(lambda: run.status("orders")["state"] == "stopped", "the end of one scope")
        assert run.get("/readyz")[0] == 200
        assert run.metric("tailrace_watcher_state", scope="orders", state="stopped") == 1
        assert run.status("orders")["checkpoint"]["kind"] == "invalidate"
        assert run.logged("scope.ended")[0]["reason"] == "invalidate"
        shop.orders.insert_one({"_id": 1})
        shop.customers.insert_one({"_id": 2})
        run.until_events(1, "customers.jsonl")
        shop.customers.drop()
    assert run.wait() == 0
    for name in names:
        assert kinds(run, name) == ["insert", "drop", "invalidate"]
    # Started again, it goes on behind them.
    run.start()
    run.until_events(4, "orders.jsonl")
    assert run.stop() == 0
    assert run.ids("orders.jsonl") == [0, 1]


def test_a_storm_of_invalidates_does_not_spin(scripted: ScriptedSet, daemon: Make) -> None:
    """Scripted: a server sends a drop before each, which is something else that was seen."""
    run = daemon(scripted.uri, supervisor={"first_seconds": 0.1, "cap_seconds": 0.4}).start()
    scripted.insert("shop.orders", {"_id": 0})
    run.until_events(1)
    for _ in range(300):
        scripted.invalidate("shop.orders")
    until(lambda: "invalidated again" in run.status()["reason"], "a wait")
    assert run.status()["state"] == "backing_off"
    assert (run.metric("tailrace_invalidates_total", scope="orders") or 0) < 50
    assert run.stop() == 0


def test_two_invalidates_in_a_row_cost_no_wait(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    """Dropped and made again twice, as deployments and tests of applications do."""
    backoff = {"first_seconds": 30, "cap_seconds": 30}
    scopes = [scope("orders", database, collection="orders")]
    run = daemon(mongod.uri, scopes=scopes, supervisor=backoff).start()
    with mongod.client() as client:
        orders = client[database].orders
        for number in range(4):
            orders.insert_one({"_id": number})
            orders.drop()
        orders.insert_one({"_id": 4})
    assert_whole(run, 5)
