"""The end of a collection or a database: followed further, or stopped at, without a busy loop."""

from tests.daemon import Daemon, Make, files, until
from tests.load import assert_whole
from tests.orders import Orders
from tests.scripted import ScriptedSet


def kinds(run: Daemon, name: str) -> list[str]:
    return [event["operationType"] for event in run.events(f"{name}.jsonl")]


def test_both_scopes_continue_after_drops_renames_and_a_dropped_database(orders: Orders) -> None:
    whole = orders.scope(name="whole")
    del whole["collection"]
    scopes = [orders.scope(name="collection"), whole]
    run = orders.daemon(scopes=scopes, **files("collection", "whole")).start()

    def insert(number: int) -> None:
        orders.insert(number)
        for name in ("collection", "whole"):
            file = f"{name}.jsonl"
            until(lambda f=file: run.ids(f)[-1:] == [number], f"event {number} in {file}")

    with orders.server.client() as client:
        insert(0)
        orders.drop()
        insert(1)
        client[orders.database].orders.rename("old")
        insert(2)
        client.drop_database(orders.database)
        insert(3)
        run.kill()
        client.drop_database(orders.database)
    orders.insert(4)
    run.start()
    insert(5)
    assert run.get("/readyz")[0] == 200
    assert run.stop() == 0
    for name in ("collection", "whole"):
        seen = list(dict.fromkeys(run.ids(f"{name}.jsonl")))
        assert seen == [0, 1, 2, 3, 4, 5], name
    assert kinds(run, "collection").count("invalidate") >= 4
    # A scope of a database continues through drops and renames of its collections.
    ends = [kind for kind in kinds(run, "whole") if kind in ("drop", "rename", "invalidate")]
    assert ends[:2] == ["drop", "rename"]
    assert ends.count("invalidate") >= 2
    assert "Traceback" not in run.log


def test_on_invalidate_stop_ends_one_scope_and_leaves_the_others_running(orders: Orders) -> None:
    names = ("orders", "customers")
    stop = {"on_invalidate": "stop"}
    scopes = [orders.scope(name=name, collection=name, **stop) for name in names]
    run = orders.daemon(scopes=scopes, **files(*names)).start()
    orders.insert(0)
    orders.drop()
    until(lambda: run.status("orders")["state"] == "stopped", "the end of one scope")
    assert run.get("/readyz")[0] == 200
    assert run.metric("tailrace_watcher_state", scope="orders", state="stopped") == 1
    assert run.status("orders")["checkpoint"]["kind"] == "invalidate"
    (ended,) = until(lambda: run.logged("scope.ended"), "the log line")
    assert ended["reason"] == "invalidate"
    orders.insert(1)
    orders.insert(2, collection="customers")
    run.until_events(1, "customers.jsonl")
    orders.drop("customers")
    assert run.wait() == 0
    for name in names:
        assert kinds(run, name) == ["insert", "drop", "invalidate"]
    # After a restart it continues after them.
    run.start()
    run.until_events(4, "orders.jsonl")
    assert run.stop() == 0
    assert run.ids("orders.jsonl") == [0, 1]


def test_a_storm_of_invalidates_does_not_spin(scripted: ScriptedSet, daemon: Make) -> None:
    """Scripted: a real server sends a drop before each invalidate, which counts as progress."""
    run = daemon(scripted.uri, supervisor={"first_seconds": 0.1, "cap_seconds": 0.4}).start()
    scripted.insert("shop.orders", {"_id": 0})
    run.until_events(1)
    for _ in range(300):
        scripted.invalidate("shop.orders")
    until(lambda: "only an invalidate" in run.status()["reason"], "a wait")
    assert run.status()["state"] == "backing_off"
    assert (run.metric("tailrace_invalidates_total", scope="orders") or 0) < 50
    assert run.stop() == 0


def test_two_invalidates_in_a_row_cost_no_wait(orders: Orders) -> None:
    """The collection is dropped and created again twice, as deployments and tests do."""
    run = orders.daemon(supervisor={"first_seconds": 30, "cap_seconds": 30}).start()
    for number in range(4):
        orders.insert(number)
        orders.drop()
    orders.insert(4)
    assert_whole(run, 5)
