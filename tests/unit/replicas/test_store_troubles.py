"""What a process does whose store is slow, silent or emptied."""

import anyio
import pytest
from structlog.testing import LogCapture

from tailrace.errors import CheckpointCorrupt
from tailrace.model import Checkpoint
from tailrace.stores.memory import MemoryCheckpoints
from tests.unit.replicas.cluster import (
    TTL,
    Cluster,
    Process,
    cluster_of,
    seconds_left,
    two,
    until_follows,
    until_renewed,
)
from tests.unit.replicas.remote_store import Trouble
from tests.unit.replicas.simulated_time import the_loop, until

NEVER, LONG = float("inf"), 1e6
OWN_MARGIN = 0.2 * TTL
"""How long before its lease is over an owner stops by itself."""


def cut_off(process: Process, before: float = NEVER) -> None:
    process.wire.troubles = [Trouble(before) for _ in range(1000)]


async def left_when_it_stops(cluster: Cluster, owner: Process) -> float:
    """What is left of the lease when the owner stops by itself."""
    await until(lambda: not owner.follows("orders"))
    return await seconds_left(cluster)


@pytest.mark.parametrize("before", [NEVER, LONG], ids=["refuses", "hangs"])
async def test_an_owner_whose_store_is_silent_stops_at_its_own_deadline(before: float) -> None:
    """What its handlers have begun is cancelled."""
    async with cluster_of("orders") as cluster:
        owner, rest = await two(cluster)
        owner.handler_seconds = 5 * TTL
        await anyio.sleep(2)
        cut_off(owner, before)
        assert await left_when_it_stops(cluster, owner) >= OWN_MARGIN - 0.1
        await until_follows(cluster, "orders", rest)


@pytest.mark.parametrize("slow", ["acquire", "renew"])
async def test_the_own_deadline_counts_from_when_the_command_was_sent(slow: str) -> None:
    async with cluster_of("orders") as cluster:
        owner = cluster.start("one")
        if slow == "renew":
            await until_follows(cluster, "orders", owner)
        owner.wire.troubles = [Trouble(after=2.5, of=slow)]
        await until(lambda: not owner.wire.troubles)
        cut_off(owner)
        await until_follows(cluster, "orders", owner)
        assert await left_when_it_stops(cluster, owner) >= OWN_MARGIN - 0.1


async def test_a_term_ends_in_time_although_a_renewal_cannot_be_cancelled() -> None:
    """As while a thread waits for SQLite's file: the call that runs is cancelled before another
    process can have the scope."""
    async with cluster_of("orders") as cluster:
        owner, _ = await two(cluster)
        owner.handler_seconds = 5 * TTL
        await anyio.sleep(2)
        cut_off(owner)
        owner.wire.troubles.insert(0, Trouble(3 * TTL, of="renew", shielded=True))
        await until(lambda: owner.open == [])
        assert await cluster.epoch("orders") == 1
        assert await seconds_left(cluster) >= OWN_MARGIN - 0.1


async def test_a_renewal_that_did_not_reach_all_leases_extends_none() -> None:
    """Which of them are another's now, only a look tells."""
    async with cluster_of("orders") as cluster:
        owner = cluster.start("one")
        await until_follows(cluster, "orders", owner)
        await anyio.sleep(TTL)
        await until_renewed(cluster)
        before = the_loop().time()
        cluster.shift = 2 * TTL
        owner.wire.troubles = [Trouble(NEVER, of="read") for _ in range(1000)]
        await left_when_it_stops(cluster, owner)
        assert the_loop().time() < before + TTL


async def test_renewals_without_an_answer_count_once_a_look_shows_them() -> None:
    """With the same margin."""
    async with cluster_of("orders") as cluster:
        owner, _ = await two(cluster)
        owner.wire.troubles = [Trouble(lost=True, of="renew") for _ in range(20)]
        await until(lambda: not owner.wire.troubles)
        assert await cluster.epoch("orders") == 1
        await anyio.sleep(0.5)
        assert owner.follows("orders")
        cut_off(owner)
        assert await left_when_it_stops(cluster, owner) >= OWN_MARGIN - 0.1


async def test_a_late_acquisition_that_makes_the_next_one_fail_is_found() -> None:
    """Nobody else was first: the lease is this process's, and need not expire."""
    async with cluster_of("orders") as cluster:
        one = cluster.start("one")
        late, overtaken = Trouble(1.2 * TTL, of="acquire"), Trouble(0.3 * TTL, of="acquire")
        one.wire.troubles = [late, overtaken]
        await until(lambda: not one.wire.troubles)
        sent = the_loop().time()
        await until_follows(cluster, "orders", one)
        assert the_loop().time() < sent + 0.5 * TTL
    assert await cluster.epoch("orders") == 2


@pytest.mark.parametrize("lease", [5.0, 10.0, 60.0])
@pytest.mark.parametrize("way", ["before", "after"])
async def test_a_store_that_answers_within_the_documented_time_costs_no_lease(
    lease: float, way: str, log: LogCapture
) -> None:
    async with cluster_of("orders", ttl=lease) as cluster:
        one = cluster.start("one")
        await until_follows(cluster, "orders", one)
        one.wire.troubles = [Trouble(**{way: 0.29 * lease}) for _ in range(1000)]
        await anyio.sleep(20 * lease)
        assert one.follows("orders")
        assert await cluster.epoch("orders") == 1
        assert one.leases.degraded() == []
    assert [each for each in log.entries if each["event"].startswith("lease.")] == []


async def test_a_store_that_is_too_slow_for_the_lease_is_named_once_with_its_time(
    log: LogCapture,
) -> None:
    """Four seconds under a lease of ten, for ever: the scope moves to and fro, and says why."""
    reasons = set[str]()
    async with cluster_of("orders") as cluster:
        one = cluster.start("one")
        await until_follows(cluster, "orders", one)
        one.wire.troubles = [Trouble(2, 2) for _ in range(1000)]
        for _ in range(30):
            await anyio.sleep(TTL / 3)
            if one.watcher.status.state in ("standby", "starting"):
                reasons.add(one.watcher.status.reason)
        (trouble,) = one.leases.degraded()
        assert "the store answers after 4.0 s, but must answer within 3 s" in trouble
        assert "set replicas.lease_seconds to at least 14" in trouble
        one.wire.troubles = []
        await anyio.sleep(4 * TTL)
        assert one.leases.degraded() == [], "it is over"
    (slow,) = [each for each in log.entries if each["event"] == "lease.store_slow"]
    assert slow["seconds"] == 4.0
    assert any("the store answers after 4.0 s" in each for each in reasons)


async def test_a_single_slow_answer_may_be_a_pause_of_the_process(log: LogCapture) -> None:
    async with cluster_of("orders") as cluster:
        owner, _ = await two(cluster)
        await cluster.freeze(owner, 0.7 * TTL)
        await anyio.sleep(TTL)
        assert owner.leases.degraded() == []
    assert [each for each in log.entries if each["event"] == "lease.store_slow"] == []


async def test_a_renewal_that_failed_is_soon_sent_again() -> None:
    async with cluster_of("orders") as cluster:
        owner, _ = await two(cluster)
        await until_renewed(cluster)
        await anyio.sleep(2.5)
        cut_off(owner)
        await anyio.sleep(4)
        owner.wire.troubles = []
        await until_renewed(cluster)
        assert owner.follows("orders")
        assert await cluster.epoch("orders") == 1


@pytest.mark.parametrize(
    "trouble",
    [
        Trouble(NEVER, of="prepare"),
        Trouble(NEVER, of="read"),
        Trouble(NEVER, of="load"),
        Trouble(NEVER, of="acquire"),
        Trouble(lost=True, of="acquire"),
    ],
    ids=str,
)
async def test_a_command_that_failed_while_a_scope_is_taken_costs_no_more_than_a_look(
    trouble: Trouble,
) -> None:
    async with cluster_of("orders") as cluster:
        one = cluster.start("one")
        one.wire.troubles = [trouble]
        await until_follows(cluster, "orders", one)
        assert the_loop().time() < 3


class TornCheckpoints(MemoryCheckpoints):
    async def load(self, scope: str) -> Checkpoint | None:
        raise CheckpointCorrupt("torn")

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        raise CheckpointCorrupt("torn")


async def test_a_scope_whose_checkpoint_is_corrupt_is_taken_and_halts() -> None:
    """Else it would stand by for ever, and nobody would say why."""
    async with cluster_of("orders") as cluster:
        cluster.checkpoints = TornCheckpoints()
        one = cluster.start("one")
        await anyio.sleep(1)
        assert one.watcher.status.state == "halted"


async def test_a_process_ends_although_its_store_does_not_answer() -> None:
    async with cluster_of("orders") as cluster:
        owner, _ = await two(cluster)
        cut_off(owner, LONG)
        cluster.terminate(owner)
        await anyio.sleep(2 * TTL)
        assert owner.stopped
