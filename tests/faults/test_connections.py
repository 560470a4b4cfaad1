"""Connections to a real server are lost, or hang, while changes are written."""

from collections.abc import Iterator

import pytest

from tests.daemon import Make, until
from tests.faults.network import Network
from tests.load import assert_whole, until_noticed, until_resumed
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.scripted import ScriptedSet


@pytest.fixture
def network(mongod: ReplicaSet) -> Iterator[Network]:
    with Network(mongod) as network:
        yield network


@pytest.fixture
def orders(mongod: ReplicaSet, database: str, daemon: Make, network: Network) -> Orders:
    """The daemons connect through the network proxy."""
    made = Orders(mongod, database, daemon)
    made.uri = network.uri
    return made


def test_cut_connections_lose_nothing(orders: Orders, network: Network) -> None:
    run = orders.daemon().start()
    with orders.load() as load:
        for number in range(1, 4):
            load.more()
            network.delay(0.02 * number)
            load.more()
            until_noticed(network.cut, lambda: run.status()["resumes"])
        load.more()
    assert run.status()["restarts"] == 0
    assert run.metric("tailrace_stream_resumes_total", reason="network") is not None
    assert_whole(run, load.written)


def test_a_half_open_network_is_noticed_and_healed(orders: Orders, network: Network) -> None:
    """The monitor's heartbeat times out; the driver then also ends the read that hangs."""
    run = orders.daemon(driver="pymongo").start()
    with orders.load(0.1) as load:
        load.more()
        network.hold()
        until(lambda: run.status()["state"] == "starting", "the end of the read", 5)
        assert run.get("/readyz")[0] == 503
        assert run.status()["reason"].startswith("resumes after: ")
        assert run.status()["last_error"]
        load.more()
        network.heal()
        until_resumed(run, 1)
    assert run.status()["restarts"] == 0
    assert_whole(run, load.written)


def test_connections_that_a_firewall_forgot_are_replaced(orders: Orders, network: Network) -> None:
    """Existing connections go dead, but new ones are served at once."""
    run = orders.daemon().start()
    with orders.load(0.1) as load:
        load.more()
        network.hold("present")
        until_resumed(run, 1)
        load.more()
    assert_whole(run, load.written)


def test_a_hanging_read_ends_when_the_monitors_know_that_its_server_is_gone(
    orders: Orders, network: Network
) -> None:
    """The monitor is refused, so no heartbeat times out; the read's connection still looks open."""
    run = orders.daemon().start()
    with orders.load(0.1) as load:
        load.more()
        network.hold("reads")
        network.refuse()
        until(lambda: run.status()["state"] == "starting", "the end of the read", 12)
        assert "is gone" in run.status()["last_error"]
        network.heal()
        until_resumed(run, 1)
    assert run.status()["restarts"] == 0
    assert_whole(run, load.written)


def test_a_read_that_never_ends_does_not_hold_up_a_stop(
    scripted: ScriptedSet, daemon: Make
) -> None:
    """Nothing else is wrong with the server. A reply that came now would be discarded."""
    run = daemon(scripted.uri).start()
    scripted.insert("shop.orders", {"_id": 0})
    run.until_events(1)
    silent = scripted.fail("getMore", silent=True, times=None)
    until(lambda: silent.hits, "the read that never ends")
    scripted.insert("shop.orders", {"_id": 1})
    run.signal()
    assert run.wait(6) == 0
    assert run.ids() == [0]
    assert "Traceback" not in run.log
