"""A user's class with a real database that is down: every change once, and no dead letter."""

import signal

import pytest

from tests.daemon import Daemon, until
from tests.shop import Shop, until_waiting


def assert_each_once(shop: Shop, run: Daemon, count: int) -> None:
    shop.until_rows(count)
    assert shop.rows == list(range(count))
    assert "No dead letters" in run.command("dead-letters", "list")
    assert not run.logged("scope.halted")
    assert "Traceback" not in run.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_outage_in_write_delays_its_handler_only(shop: Shop, number: signal.Signals) -> None:
    """It is longer than all attempts; the cursor stays open."""
    run = shop.daemon().start()
    shop.orders.insert(*range(50))
    shop.until_rows(50)
    shop.server.stop(number)
    shop.orders.insert(*range(50, 200))
    until_waiting(run)
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


def test_an_outage_in_on_ddl_is_waited_out(shop: Shop) -> None:
    """It is a barrier: what comes after the drop waits as well, for this handler."""
    run = shop.daemon(scope={"collection": None}).start()
    shop.orders.insert(*range(20))
    shop.until_rows(20)
    shop.server.stop()
    shop.orders.drop()
    shop.orders.insert(*range(20, 40))
    until_waiting(run)
    run.until_events(41)
    shop.server.start()
    assert_each_once(shop, run, 40)
    assert shop.operations == ["insert"] * 20 + ["drop"] + ["insert"] * 20
    assert run.stop() == 0, run.log


def test_an_outage_during_a_snapshot_repeats_and_loses_no_row(shop: Shop) -> None:
    shop.orders.insert(*range(500))
    run = shop.daemon(
        options={"seconds": 0.05}, scope={"snapshot": {"mode": "initial", "chunk_documents": 50}}
    ).start()
    shop.until_rows(60)
    shop.server.stop(signal.SIGKILL)
    until_waiting(run)
    shop.orders.insert(*range(500, 520))
    run.until_events(522)
    shop.server.start()
    shop.until_rows(520)
    assert sorted(shop.rows) == list(range(520))
    assert shop.operations.count("read") == 500
    assert run.stop() == 0, run.log


def test_when_the_byte_budget_is_spent_the_scope_waits_and_says_for_whom(shop: Shop) -> None:
    """The other handler continues until then, and afterwards."""
    budget = 1 << 20
    run = shop.daemon(delivery={"max_in_flight_bytes": budget}, scope={"batch_size": 20}).start()
    shop.server.stop()
    shop.orders.insert(*range(400), text="x" * 10_000)
    until_waiting(run)
    seen = until(lambda: len(run.events()) >= 40 and len(run.events()), "some events")
    until(lambda: (run.metric("tailrace_in_flight_bytes") or 0) > budget / 2, "a spent budget")
    assert seen < 400
    assert "the destination of handler 'table'" in run.status()["reason"]
    shop.server.start()
    assert_each_once(shop, run, 400)
    run.until_events(400)
    assert run.stop() == 0, run.log


def test_a_hand_over_during_an_outage_loses_and_repeats_nothing(shop: Shop) -> None:
    """One process is killed in it, the next one begins in it."""
    store = {"type": "mongodb", "database": f"{shop.orders.database}_store"}
    one, two = (
        shop.daemon(name, store=store, replicas={"lease_seconds": 2, "name": name})
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
    until_waiting(two)
    shop.server.start()
    assert_each_once(shop, two, 100)
    assert two.stop() == 0, two.log
