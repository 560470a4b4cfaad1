"""What a process says of leases that it cannot read, or whose owner is not alive."""

import anyio
import pytest
from structlog.testing import LogCapture

from tailrace.engine.status.document import status_document
from tailrace.model.lease import Lease
from tests.unit.replicas.cluster import TTL, Process, cluster_of, two, until_follows
from tests.unit.replicas.remote_store import Trouble


def reads_fail(process: Process, trouble: Trouble) -> None:
    process.wire.troubles = [Trouble(trouble.before, of="read") for _ in range(1000)]


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (Trouble(float("inf")), "connection refused"),
        (Trouble(1e6), f"the leases were not read within {TTL:g} s"),
    ],
    ids=["fail", "hang"],
)
async def test_what_was_read_of_leases_is_unknown_after_their_end(
    trouble: Trouble, why: str, log: LogCapture
) -> None:
    """The owner and the other members may be dead by then. It is logged once."""
    async with cluster_of("orders") as cluster:
        owner, rest = await two(cluster)
        reads_fail(rest, trouble)
        await anyio.sleep(0.6 * TTL)
        assert rest.supervisor.not_ready() == [], "the lease has not expired yet"
        cluster.kill(owner)
        await anyio.sleep(1.6 * TTL)
        assert status_document(rest.watcher.status)["lease"] == {
            "owner": None,
            "epoch": 1,
            "held": False,
        }
        (reason,) = rest.supervisor.not_ready()
        assert reason.startswith("scope orders: standby: which process follows it is not known: ")
        assert why in reason
        assert owner.name not in reason
        assert rest.leases.members() == []
        rest.wire.troubles = []
        await until_follows(cluster, "orders", rest)
    failed = [each for each in log.entries if each["event"] == "lease.store_failed"]
    assert [each["error"] for each in failed] == [why]


async def test_a_lease_of_nobody_who_is_alive_is_not_followed() -> None:
    """As after a clock of the store that ran ahead."""
    async with cluster_of("orders") as cluster:
        await cluster.leases.prepare(["orders"])
        assert await cluster.leases.acquire(Lease("orders"), "ghost/1", 1, 1e9)
        one = cluster.start("one")
        await anyio.sleep(2 * TTL)
        found = status_document(one.watcher.status)["lease"]
        assert found == {"owner": "", "epoch": 1, "held": False}
        (reason,) = one.supervisor.not_ready()
        assert (
            "no process follows it: its lease belongs to ghost/1, which is not a live member"
            in reason
        )
        assert "'tailrace scopes release orders' frees it" in reason
