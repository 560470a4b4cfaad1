"""A process stops while it acquires a lease, in simulated time."""

import anyio
import pytest

from tests.unit.replicas.cluster import TTL, Cluster, until_follows
from tests.unit.replicas.remote_store import Trouble
from tests.unit.replicas.simulated_time import simulated


@pytest.mark.parametrize(
    "trouble",
    [Trouble(before=TTL / 2, of="acquire"), Trouble(after=TTL / 2, of="acquire")],
    ids=["the command is late", "the answer is late"],
)
def test_a_process_that_stops_while_it_acquires_a_lease_frees_it(trouble: Trouble) -> None:
    cluster = Cluster("orders")

    async def script() -> None:
        one = cluster.start("one")
        one.wire.troubles = [trouble]
        while one.wire.troubles:  # noqa: ASYNC110 - no event tells it
            await anyio.sleep(0.01)
        cluster.terminate(one)
        while not one.stopped:  # noqa: ASYNC110 - as above
            await anyio.sleep(0.01)
        assert (await cluster.leases.read()).leases["orders"].free
        await anyio.sleep(TTL / 2)
        lease = (await cluster.leases.read()).leases["orders"]
        assert (lease.free, lease.owner) == (True, ""), "the command that came late took nothing"
        await until_follows(cluster, "orders", cluster.start("next"))

    simulated(cluster.run, script)
    cluster.check("orders")
