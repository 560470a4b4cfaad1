"""How processes share scopes, in simulated time: who takes over, when, and who hands over."""

import anyio
import pytest

from tests.unit.replicas.cluster import TTL, Process, cluster_of, two, until_follows
from tests.unit.replicas.remote_store import Trouble


async def test_a_process_that_acquires_a_lease_is_ready_only_when_it_follows() -> None:
    """Changes that are written once it is ready must find an open stream."""
    async with cluster_of("orders") as cluster:
        one = cluster.start("one")
        one.wire.troubles = [Trouble(1.0, of="acquire")]
        await anyio.sleep(0.5)
        assert one.watcher.status.state == "starting"
        assert one.supervisor.not_ready() != []
        await until_follows(cluster, "orders", one)


async def test_one_follows_and_the_others_stand_by() -> None:
    async with cluster_of("orders") as cluster:
        one = cluster.start("one")
        await until_follows(cluster, "orders", one)
        other = cluster.start("other")
        await anyio.sleep(TTL)
        assert cluster.owners("orders") == ["one"]
        status = other.watcher.status
        assert (status.state, status.reason) == ("standby", "one follows it")
        assert other.supervisor.not_ready() == []
        assert status.checkpoint is not None, "its lag is known"
        assert other.supervisor.restart("orders").startswith("scope 'orders' is standby: only")


async def test_transfers_are_counted_from_zero() -> None:
    """Or a rate over time would miss the first one."""

    def transfers(process: Process) -> dict[str, float]:
        families = process.leases.metrics.registry.collect()
        (family,) = (each for each in families if each.name == "tailrace_lease_transfers")
        return {each.labels["reason"]: each.value for each in family.samples}

    async with cluster_of("orders") as cluster:
        one = cluster.start("one")
        none = {"first": 0, "expired": 0, "requested": 0, "released": 0}
        assert transfers(one) == none
        await until_follows(cluster, "orders", one)
        assert transfers(one) == {**none, "first": 1}


async def test_after_a_kill_another_takes_over_within_the_lease() -> None:
    async with cluster_of("orders") as cluster:
        owner, rest = await two(cluster)
        rest.wire.troubles = [Trouble(0.5, of="read")]  # its looks are not at full seconds then
        await anyio.sleep(2)
        cluster.kill(owner)
        left = (await cluster.leases.read()).leases["orders"].seconds_left
        await anyio.sleep(left + 0.1)
        assert rest.follows("orders"), "it looks when the lease runs out"


async def test_a_frozen_owner_hands_nothing_over_and_stands_by() -> None:
    async with cluster_of("orders") as cluster:
        owner, rest = await two(cluster)
        await cluster.freeze(owner, 3 * TTL)
        assert rest.follows("orders")
        await anyio.sleep(2)
        assert cluster.owners("orders") == [rest.name]
        assert owner.watcher.status.reason == f"{rest.name} follows it"


async def test_no_member_follows_more_than_it_may() -> None:
    names = [f"scope-{n}" for n in range(6)]
    async with cluster_of(*names) as cluster:
        cluster.start("one", max_scopes=2)
        cluster.start("other", max_scopes=3)
        await anyio.sleep(5 * TTL)
        followed = [cluster.owners(name) for name in names]
        assert sorted(owner for each in followed for owner in each) == ["one"] * 2 + ["other"] * 3
        three = cluster.start("three", max_scopes=1)
        await anyio.sleep(1)
        assert all(cluster.owners(name) for name in names), "the last one is followed as well"
        assert sum(three.follows(name) for name in names) == 1


@pytest.mark.simulates
async def test_ten_processes_and_forty_scopes_at_once() -> None:
    names = [f"scope-{n}" for n in range(40)]
    async with cluster_of(*names) as cluster:
        processes = [cluster.start(f"process-{n}") for n in range(10)]
        await anyio.sleep(1)
        assert all(len(cluster.owners(name)) == 1 for name in names)
        await anyio.sleep(3 * TTL)
        assert all(len(cluster.owners(name)) == 1 for name in names)
        assert all(any(each.follows(name) for name in names) for each in processes)
