"""What every destination does when its server is down, hangs, or refuses its credentials."""

from tests.daemon import until
from tests.destinations.copying import Copying, assert_untroubled, until_waiting


def test_an_outage_longer_than_all_attempts_delays_its_handler_only(logged: Copying) -> None:
    """Each change arrives afterwards, in order, and no event is set aside."""
    run = logged.daemon().start()
    logged.insert(range(20))
    logged.until_equal()
    logged.destination.stop()
    logged.count(range(20))
    until_waiting(run)
    logged.count(range(20))
    run.until_events(60)
    assert run.status()["state"] == "waiting"
    logged.destination.start()
    logged.until_equal()
    logged.assert_in_order()
    until(lambda: run.metric("tailrace_destination_up", handler="it") == 1, "its return")
    assert not run.logged("watcher.restarting")
    assert_untroubled(run)


def test_a_server_that_is_down_at_the_start_is_waited_for(logged: Copying) -> None:
    """The other handler does not wait, and a stop meanwhile is a clean one."""
    logged.destination.stop()
    run = logged.daemon()
    for first in (0, 20):
        run.start()
        logged.insert(range(first, first + 20))
        until_waiting(run)
        run.until_events(first + 20)
        assert run.stop() == 0, run.log
    run.start()
    logged.destination.start()
    logged.until_equal()
    logged.assert_in_order()
    assert_untroubled(run)


def test_a_silent_server_holds_no_more_than_the_byte_budget_allows(logged: Copying) -> None:
    """It accepts connections and answers nothing; the other handler goes on until then."""
    budget = 1 << 20
    run = logged.daemon(
        delivery={"max_in_flight_bytes": budget}, scope={"batch_size": 20}, handler={}
    ).start()
    logged.insert([-1])
    logged.until_equal()
    logged.destination.pause()
    logged.insert(range(400), text="x" * 10_000)
    until(lambda: (run.metric("tailrace_in_flight_bytes") or 0) > budget / 2, "a spent budget")
    seen = until(lambda: len(run.events()) >= 40 and len(run.events()), "some events")
    assert seen < 300
    logged.destination.start()
    logged.until_equal()
    run.until_events(401)
    logged.assert_in_order()
    assert_untroubled(run)


def test_an_outage_during_a_drop_is_waited_out(copied: Copying) -> None:
    """It is a barrier: what comes after it waits as well, for this handler."""
    run = copied.daemon(scope={"collection": None, "full_document": "lookup"}).start()
    copied.insert(range(20))
    copied.until_equal()
    copied.destination.stop()
    copied.orders.drop()
    copied.insert(range(20, 40))
    until_waiting(run)
    run.until_events(41)
    copied.destination.start()
    copied.until_has(*range(20, 40))
    assert_untroubled(run)


def test_credentials_that_end_are_waited_out_until_the_file_has_others(copied: Copying) -> None:
    destination = copied.destination
    if not hasattr(destination, "expire"):
        return  # test_NAME.py has it, where the server needs another configuration for it
    run = copied.daemon().start()
    copied.insert(range(20))
    copied.until_equal()
    destination.expire()
    copied.count(range(20))
    until_waiting(run)
    destination.renew()
    copied.until_equal()
    assert_untroubled(run)
