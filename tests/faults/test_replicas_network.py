"""The network between one of several processes and its servers is cut or slow, or loses answers."""

import json
from collections.abc import Iterator

import pytest

from tailrace.model.lease import Member
from tailrace.replicas.assignment import assignment
from tests.daemon import Daemon, until
from tests.faults.network import Network
from tests.mongod import ReplicaSet
from tests.orders import Orders
from tests.replicas import LEASE_SECONDS, STEADY_SECONDS, Replicas


@pytest.fixture
def network(mongod: ReplicaSet) -> Iterator[Network]:
    with Network(mongod) as proxies:
        yield proxies


@pytest.fixture
def replicas(orders: Orders) -> Replicas:
    return Replicas(orders)


def started(replicas: Replicas, network: Network) -> Daemon:
    """One process behind the network proxy, which follows the scope, and one that stands by."""
    one = replicas.daemon("one", network.uri).start()
    replicas.until_owner(one)
    replicas.start("other")
    return one


def test_the_store_alone_is_cut_off(replicas: Replicas, network: Network) -> None:
    """The owner could still read and handle, but it stops and another process continues."""
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
    """The owner keeps its lease, and every process shows that the scope does not advance."""
    replicas.lease = STEADY_SECONDS
    one = started(replicas, network)
    (other,) = replicas.others(one)

    def lag() -> float:
        return other.metric("tailrace_lag_seconds", stage="committed") or 0

    with replicas.orders.load() as load:
        load.more()
        replicas.until_noted(load.written)
        network.hold("reads")
        until(lambda: lag() > 4, "a lag that others see")
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


def test_a_store_that_is_too_slow_for_the_lease_is_named_with_its_time(
    replicas: Replicas, network: Network
) -> None:
    """It answers in less than a lease, but not in 0.3 of it: once in the log, and in the status."""
    one = started(replicas, network)
    network.delay(0.4 * LEASE_SECONDS)
    (slow,) = until(lambda: one.logged("lease.store_slow"), "the warning")
    assert slow["seconds"] >= 0.4 * LEASE_SECONDS
    answer = until(lambda: one.get("/status")[1], "the status")
    (degraded,) = json.loads(answer)["degraded"]
    assert degraded.startswith("replicas: the store answers after ")
    assert f"must answer within {0.3 * LEASE_SECONDS:g} s" in degraded
    network.delay(0)
    until(lambda: not json.loads(one.get("/status")[1] or "null")["degraded"], "that it is over")
    assert len(one.logged("lease.store_slow")) == 1
    replicas.stop()


@pytest.mark.parametrize(
    ("command", "collection", "fields"),
    [
        ("update", "leases", ["$setOnInsert"]),
        ("aggregate", "leases", []),
        ("findAndModify", "leases", []),
        ("findAndModify", "checkpoints", []),
        ("update", "checkpoints", []),
    ],
    ids=["prepare", "read", "acquire", "claim", "save"],
)
def test_an_answer_is_lost_before_a_process_follows(
    replicas: Replicas, network: Network, command: str, collection: str, fields: list[str]
) -> None:
    """The server executed the command: the process finds that out and follows the scope."""
    replicas.lease = STEADY_SECONDS
    with replicas.orders.load() as load:
        one = replicas.daemon("one", network.uri)
        for _ in range(2):
            network.lose_answer(command, collection, *fields)
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


def test_the_answer_to_a_renewal_is_lost(orders: Orders, network: Network) -> None:
    """A read of the leases shows that they were renewed: the owner continues."""
    replicas = Replicas(orders, lease=6)  # a busy machine may delay that read by seconds
    started(replicas, network)
    with replicas.orders.load() as load:
        for _ in range(3):
            network.lose_answer("update", "leases", "joined")
            until(lambda: network.lost, "a renewal")
            load.more()
    replicas.until_noted(load.written - 1)
    expected = [("one", 1, number) for number in range(load.written)]
    assert [(each.process, each.epoch, each.number) for each in replicas.noted] == expected
    replicas.stop()


def test_the_answer_to_a_request_is_lost(replicas: Replicas, network: Network) -> None:
    """The process that should have the scope has requested it, and gets it once."""
    replicas.lease = 6  # a process requests a scope after two leases
    names = {"one", "other"}
    preferred = assignment(["orders"], [Member(name, name) for name in names])["orders"]
    (first,) = names - {preferred}
    replicas.until_owner(*replicas.start(first))
    asking = replicas.daemon(preferred, network.uri).start()
    network.lose_answer("update", "leases", "wanted_by")
    with replicas.orders.load() as load:
        replicas.until_owner(asking)
        load.more()
    assert network.lost
    replicas.until_noted(load.written - 1)
    assert asking.metric("tailrace_lease_transfers_total", reason="requested") == 1
    assert {each.epoch for each in replicas.noted} == {1, 2}
    assert [each.number for each in replicas.noted] == list(range(load.written))
    replicas.stop()


@pytest.mark.parametrize(
    ("command", "fields"), [("update", ["$min"]), ("delete", [])], ids=["release", "leave"]
)
def test_an_answer_is_lost_at_the_end(
    orders: Orders, network: Network, command: str, fields: list[str]
) -> None:
    """The lease is free at once, and the member is removed."""
    replicas = Replicas(orders, lease=6)  # else the lease may end before a slow release
    one = started(replicas, network)
    (other,) = replicas.others(one)
    replicas.orders.insert(0)
    replicas.until_noted(0)
    network.lose_answer(command, "leases", *fields)
    assert one.stop() == 0, one.log
    assert network.lost
    replicas.orders.insert(1)
    replicas.until_noted(1)
    assert [(each.process, each.number) for each in replicas.noted] == [("one", 0), ("other", 1)]
    assert other.metric("tailrace_lease_transfers_total", reason="released") == 1
    assert [each["name"] for each in replicas.documents if "name" in each] == ["other"]
    replicas.stop()
