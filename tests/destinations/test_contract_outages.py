"""What every destination does when its server is down, hangs, or refuses its credentials."""

import pytest

from tests.daemon import until
from tests.destinations.copying import (
    Copying,
    assert_untroubled,
    key_of,
    until_seen,
    until_waiting,
)


def test_an_outage_of_any_kind_delays_its_handler_only(logged: Copying) -> None:
    """It is longer than all attempts. Each change arrives afterwards, in order, and none is set
    aside. While the server accepts connections and answers nothing, no more is held than the byte
    budget allows, and the other handler goes on."""
    budget, server = 1 << 20, logged.destination
    run = logged.daemon(delivery={"max_in_flight_bytes": budget}, scope={"batch_size": 20}).start()
    logged.insert(range(20))
    logged.until_equal()
    outages = [(server.stop, server.start)]
    if hasattr(server, "expire"):  # else test_NAME.py has it: it needs another configuration
        outages.append((server.expire, server.renew))
    for number, (begin, end) in enumerate(outages):
        begin()
        logged.count(range(20))
        until_waiting(run)
        logged.count(range(20))
        run.until_events(60 + 40 * number)
        assert run.status()["state"] == "waiting"
        end()
        logged.until_equal()
        logged.assert_in_order()
        until(lambda: run.metric("tailrace_destination_up", handler="it") == 1, "its return")
    before = len(run.events())
    server.pause()
    logged.insert(range(100, 500), text="x" * 10_000)
    run.until_events(before + 400)
    assert (run.metric("tailrace_in_flight_bytes") or 0) <= budget
    server.start()
    logged.until_equal()
    logged.assert_in_order()
    assert not run.logged("watcher.restarting")
    assert_untroubled(run)


# One that stores its position, and one that does not. Those of all: test_contract.py.
@pytest.mark.parametrize("kind", ["postgresql", "redis"], scope="session")
def test_a_server_that_is_down_at_the_start_is_told_by_a_probe_and_waited_for(
    logged: Copying,
) -> None:
    """A probe leaves nothing. The other handler does not wait, and a stop is a clean one."""
    logged.insert([0])
    run = logged.daemon()
    run.configured()
    with run.begun("check", "--connect") as check:
        out, errors = check.communicate(timeout=60)
    assert (check.returncode, errors) == (0, ""), out
    assert any(line.startswith("handler it: ") for line in out.splitlines())
    assert (logged.sent, logged.documents) == ([], {})
    logged.destination.stop()
    code, errors = run.refused("check", "--connect")
    assert code == 1, errors
    (line,) = errors.splitlines()
    assert "handlers.it" in line
    logged.collection.delete_one({"_id": 0})
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


def test_what_comes_after_a_drop_arrives_after_it_over_an_outage_too(copied: Copying) -> None:
    """Documents may overtake each other, but nothing overtakes the drop."""
    run = copied.daemon(scope={"collection": None, "full_document": "lookup"}).start()
    copied.insert(range(20))
    copied.until_equal()
    copied.orders.drop()
    copied.insert(range(10, 30))
    if copied.destination.sent() is None:
        copied.until_equal()
    else:
        until_seen(lambda: len({each.key for each in copied.sent} - {None}) == 30, "all keys")
        whole = [each for each in copied.sent if each.key or each.operation == "drop"]
        drops = [at for at, each in enumerate(whole) if each.operation == "drop"]
        assert drops in ([], [20])
        keys = [each.key for each in whole if each.key]
        assert set(keys[:20]) == {key_of(n) for n in range(20)}
        assert set(keys[20:]) == {key_of(n) for n in range(10, 30)}
    copied.destination.stop()
    copied.orders.drop()
    copied.insert(range(20, 40))
    until_waiting(run)
    run.until_events(62)
    copied.destination.start()
    copied.until_has(*range(20, 40))
    assert_untroubled(run)
