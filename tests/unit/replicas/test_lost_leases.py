"""What a process does whose leases ran out, were taken or removed."""

import anyio
import pytest

from tests.unit.replicas.cluster import TTL, cluster_of, two, until_follows, until_renewed
from tests.unit.replicas.remote_store import Trouble
from tests.unit.replicas.simulated_time import until


@pytest.mark.parametrize("names", [["one"], ["one", "other"]], ids=len)
async def test_a_lease_that_ran_out_by_the_clock_of_the_store_is_acquired_anew(
    names: list[str],
) -> None:
    """Not only at the owner's own deadline: somebody else may have taken it."""
    async with cluster_of("orders") as cluster:
        processes = [cluster.start(name) for name in names]
        await until_follows(cluster, "orders", *processes)
        await anyio.sleep(TTL)
        await until_renewed(cluster)
        cluster.shift = 2 * TTL
        await anyio.sleep(0.5 * TTL)
        assert len(cluster.owners("orders")) == 1
        assert await cluster.epoch("orders") == 2


async def test_a_lease_that_somebody_took_first_is_not_followed() -> None:
    async with cluster_of("orders") as cluster:
        one = cluster.start("one")
        one.wire.troubles = [Trouble(1.0, of="acquire")]
        await until(lambda: not one.wire.troubles)
        lease = (await cluster.leases.read()).leases["orders"]
        assert await cluster.leases.acquire(lease, "stranger", 1, TTL)
        await anyio.sleep(2)
        assert cluster.owners("orders") == []
        assert cluster.saved == [], "it has not even claimed the checkpoint"


async def test_a_request_of_nobody_who_is_alive_is_left_alone() -> None:
    async with cluster_of("orders") as cluster:
        owner = cluster.start("one")
        await until_follows(cluster, "orders", owner)
        await cluster.leases.request((await cluster.leases.read()).leases["orders"], "nobody")
        await anyio.sleep(TTL)
        assert await cluster.epoch("orders") == 1


async def test_leases_that_somebody_has_removed_are_made_again() -> None:
    """With an epoch above that of the checkpoint."""
    async with cluster_of("orders") as cluster:
        await two(cluster)
        cluster.remove_leases()
        await anyio.sleep(3)
        assert len(cluster.owners("orders")) == 1
        assert await cluster.epoch("orders") == 2


async def test_a_lease_that_was_made_again_may_be_another_s_with_the_same_epoch() -> None:
    """If the first owner had not raised the epoch of the checkpoint yet."""
    async with cluster_of("orders") as cluster:
        one = cluster.start("one")
        one.wire.troubles = [Trouble(5.0, of="claim")]
        await until_follows(cluster, "orders", one)
        cluster.remove_leases()
        await cluster.leases.prepare(["orders"])
        lease = (await cluster.leases.read()).leases["orders"]
        assert await cluster.leases.acquire(lease, "stranger", 1, TTL)
        await anyio.sleep(2)
        assert cluster.owners("orders") == []
