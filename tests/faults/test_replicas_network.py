"""The network between one of several processes and its servers: cut, slow, or answers are lost."""

from collections.abc import Iterator

import pytest

from tests.daemon import Daemon, Make, until
from tests.faults.network import Network
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.replicas import LEASE_SECONDS, Replicas


@pytest.fixture
def network(mongod: ReplicaSet) -> Iterator[Network]:
    with Network(mongod) as proxies:
        yield proxies


@pytest.fixture
def replicas(mongod: ReplicaSet, database: str, daemon: Make) -> Replicas:
    return Replicas(Orders(mongod, database, daemon))


def started(replicas: Replicas, network: Network) -> Daemon:
    """One process behind the network, which follows, and another one, which stands by."""
    one = replicas.daemon("one", network.uri).start()
    replicas.until_owner(one)
    replicas.start("other")
    return one


def test_the_store_alone_is_cut_off(replicas: Replicas, network: Network) -> None:
    """The owner could read on, and handle: it does not, and another one does."""
    one = started(replicas, network)
    with replicas.orders.load() as load:
        load.more()
        replicas.until_noted(load.written)
        network.hold("store")
        replicas.until_owner(*replicas.others(one))
        load.more()
        until(lambda: one.logged("lease.lost"), "that the owner knows")
        network.heal()
        load.more()
        until(lambda: one.status().get("state") == "standby", "that it stands by")
    replicas.until_noted(load.written - 1)
    replicas.assert_shared(load.written)
    replicas.stop()


def test_the_source_alone_is_cut_off(replicas: Replicas, network: Network) -> None:
    """The owner keeps its lease, and every process shows that the scope does not move."""
    one = started(replicas, network)
    (other,) = replicas.others(one)

    def lag() -> float:
        return other.metric("tailrace_lag_seconds", stage="committed") or 0

    with replicas.orders.load() as load:
        load.more()
        replicas.until_noted(load.written)
        network.hold("reads")
        until(lambda: lag() > 2 * LEASE_SECONDS, "a lag that others see")
        assert replicas.owners() == [one]
        network.heal()
        load.more()
    replicas.until_noted(load.written - 1)
    replicas.assert_shared(load.written)
    replicas.stop()


def test_a_store_that_is_slow_by_a_lease(replicas: Replicas, network: Network) -> None:
    one = started(replicas, network)
    with replicas.orders.load() as load:
        load.more()
        replicas.until_noted(load.written)
        network.delay(LEASE_SECONDS)
        replicas.until_owner(*replicas.others(one))
        load.more()
        network.delay(0)
        load.more()
    replicas.until_noted(load.written - 1)
    replicas.assert_shared(load.written)
    replicas.stop()


@pytest.mark.parametrize(
    ("command", "collection"),
    [
        ("update", "leases"),
        ("aggregate", "leases"),
        ("findAndModify", "leases"),
        ("findAndModify", "checkpoints"),
    ],
    ids=["renew", "read", "acquire", "claim"],
)
def test_an_answer_that_is_lost(
    replicas: Replicas, network: Network, command: str, collection: str
) -> None:
    """The command was executed: its process finds that out, and follows the scope."""
    with replicas.orders.load() as load:
        one = replicas.daemon("one", network.uri)
        for _ in range(2):
            network.lose_answer(command, collection)
            one.start()
            until(lambda: network.lost, "the command")
            replicas.until_owner(one)
            load.more()
            replicas.until_noted(load.written)
            assert one.stop() == 0, one.log
        one.start()
    replicas.until_noted(load.written - 1)
    replicas.assert_shared(load.written)
    replicas.stop()


def test_the_answer_to_a_release_is_lost(replicas: Replicas, network: Network) -> None:
    one = started(replicas, network)
    replicas.orders.insert(0)
    replicas.until_noted(0)
    network.lose_answer("update", "leases")
    assert one.stop() == 0, one.log
    replicas.orders.insert(1)
    replicas.until_noted(1)
    replicas.assert_shared(2)
    replicas.stop()
