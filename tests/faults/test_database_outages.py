"""The documented class with a real database that is down: every change once, and no dead letter.

The contract suite of destinations has outages in snapshots and drops, and the spent byte budget.
"""

import signal

from tests.daemon import Daemon, until
from tests.machine import free_port
from tests.replicas import STEADY_SECONDS
from tests.shop import Shop, until_waiting


def assert_each_once(shop: Shop, run: Daemon, count: int) -> None:
    shop.until_rows(count)
    assert shop.rows == list(range(count))
    assert "No dead letters" in run.command("dead-letters", "list")
    assert not run.logged("scope.halted")
    assert "Traceback" not in run.log


def test_an_outage_in_write_delays_its_handler_only(shop: Shop) -> None:
    """It is longer than all attempts; the cursor stays open."""
    run = shop.daemon().start()
    shop.orders.insert(*range(50))
    shop.until_rows(50)
    shop.server.stop(signal.SIGKILL)
    shop.orders.insert(*range(50, 200))
    until_waiting(run)
    assert "the destination of handler 'table'" in run.status()["reason"]
    run.until_events(200)
    shop.server.start()
    assert_each_once(shop, run, 200)
    until(lambda: run.metric("tailrace_destination_up", handler="table") == 1, "its return")
    assert len(run.logged("destination.unavailable")) == 1
    assert len(run.logged("destination.recovered")) == 1
    assert not run.logged("watcher.restarting")
    assert run.stop() == 0


def test_a_database_that_is_down_at_the_start_is_waited_for(shop: Shop) -> None:
    """In ``__aenter__``: the other handler does not wait, and a stop is a clean one."""
    shop.server.stop()
    run = shop.daemon()
    for first in (0, 50):
        run.start()
        until_waiting(run)
        shop.orders.insert(*range(first, first + 50))
        run.until_events(first + 50)
        assert run.stop() == 0, run.log
    run.start()
    until_waiting(run)
    shop.server.start()
    assert_each_once(shop, run, 100)
    assert len(run.events()) == 100
    assert run.stop() == 0, run.log


def test_a_daemon_that_is_killed_in_an_outage_serves_the_other_handler_when_it_is_back(
    shop: Shop,
) -> None:
    """The last save is old: what the database has beyond it is found out when it is back."""
    run = shop.daemon(checkpoint={"interval_seconds": 3600}).start()
    shop.orders.insert(*range(50))
    shop.until_rows(50)
    shop.server.stop()
    shop.orders.insert(*range(50, 100))
    until_waiting(run)
    run.until_events(100)
    run.kill()
    run.start()
    until_waiting(run)
    run.until_events(200)  # once more, because of the kill
    shop.server.start()
    assert_each_once(shop, run, 100)
    assert len(run.events()) == 200
    assert run.stop() == 0, run.log


def test_a_hand_over_during_an_outage_loses_and_repeats_nothing(shop: Shop) -> None:
    """One process is killed in it, the next one begins in it."""
    store = {"type": "mongodb", "database": f"{shop.orders.database}_store"}
    one, two = (
        shop.daemon(name, store=store, replicas={"lease_seconds": STEADY_SECONDS, "name": name})
        for name in ("one", "two")
    )
    one.start()
    shop.orders.insert(*range(50))
    shop.until_rows(50)
    two.start(ready=False).until_answers()
    shop.server.stop()
    shop.orders.insert(*range(50, 100))
    until_waiting(one)
    one.kill()
    two.command("scopes", "release", "orders")
    until_waiting(two)
    shop.server.start()
    assert_each_once(shop, two, 100)
    assert two.stop() == 0, two.log


def test_a_killed_daemon_stores_no_change_twice_and_the_table_ends_as_the_collection(
    shop: Shop,
) -> None:
    run = shop.daemon(scope={"full_document": "lookup"}).start()
    shop.orders.insert(*range(100), state="new")
    shop.until_rows(1)
    run.kill()
    run.start()
    assert_each_once(shop, run, 100)
    with shop.orders.server.client() as client:
        orders = client[shop.orders.database].orders
        orders.update_many({}, {"$set": {"state": "paid"}})
        orders.delete_many({"_id": {"$gte": 90}})
    until(lambda: len(shop.select("SELECT id FROM orders")) == 90, "the deletions")
    assert run.stop() == 0, run.log
    assert shop.select("SELECT DISTINCT document ->> 'state' FROM orders") == [("paid",)]
    assert shop.select("SELECT max((document ->> '_id')::int) FROM orders") == [(89,)]


def test_a_process_that_was_replaced_is_fenced(shop: Shop) -> None:
    run = shop.daemon().start()
    shop.orders.insert(1)
    shop.until_rows(1)
    shop.execute("UPDATE position SET epoch = epoch + 1")
    shop.orders.insert(2)
    run.halts()
    assert "another process writes there now" in run.logged("scope.halted")[0]["error"]
    assert shop.rows == [1]


def halted(run: Daemon) -> bool:
    return bool(run.status().get("handlers", {}).get("table", {}).get("state") == "halted")


def test_a_document_that_the_database_refuses_halts_and_the_process_helps_on(shop: Shop) -> None:
    """With what is the default; the other handler goes on."""
    table = {"type": "postgresql", "dsn": shop.dsn, "table": "{collection}"}
    run = shop.daemon(http={"port": free_port()})
    run.configuration["handlers"]["table"] = table
    run.configuration["scopes"][0]["full_document"] = "lookup"
    shop.execute("DROP TABLE orders CASCADE")
    run.start()
    shop.orders.insert(1)
    shop.orders.insert(2, text="a\0b")
    shop.orders.insert(3)
    until(lambda: halted(run), "the halt")
    run.until_events(3)
    code, reasons = run.get("/readyz")
    assert code == 503
    for named in ('"_id"', "2", "nul: replace", "on_failure: dead_letter", "tailrace reload"):
        assert named in reasons, reasons
    assert run.get("/")[0] == 200
    labels = {"scope": "orders", "handler": "table", "state": "halted"}
    assert run.metric("tailrace_subscription_state", **labels) == 1
    # Another process tells it, too, after this one.
    run.kill()
    assert "nul: replace" in run.command("checkpoints", "show", "orders")
    asked = ("why", "--scope", "orders", "--key", '{"_id": 2}')
    assert "halted" in run.command(*asked)
    run.start(ready=False).until_answers()
    until(lambda: halted(run), "the halt")
    table["nul"] = "replace"
    run.configured()
    run.command("reload")
    rows = "SELECT document ->> '_id' FROM orders ORDER BY 1"
    until(lambda: [*shop.select(rows)] == [("1",), ("2",), ("3",)], "all rows")
    run.until_ready()
    assert run.stop() == 0
    assert "nul: replace" not in run.command("checkpoints", "show", "orders")
