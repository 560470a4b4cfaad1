"""How soon another process follows, for any lease and with full processes, and how often."""

from collections import Counter
from itertools import product

import anyio
import pytest

from tests.unit.replicas.cluster import TTL, Cluster, Process, cluster_of
from tests.unit.replicas.simulated_time import the_loop, until

pytestmark = pytest.mark.simulates

SCOPES = [f"scope-{n}" for n in range(6)]


def followed(cluster: Cluster) -> Counter[str]:
    """How many scopes each process follows, by its name."""
    return Counter(owner for scope in cluster.drivers for owner in cluster.owners(scope))


async def until_all_follow(cluster: Cluster) -> None:
    await until(lambda: followed(cluster).total() == len(cluster.drivers))


async def end(cluster: Cluster, process: Process, how: str) -> float:
    """Stops or kills a process; returns the seconds until each scope is followed again."""
    before = the_loop().time()
    if how == "stop":
        cluster.terminate(process)
        await until(lambda: process.stopped)
    else:
        cluster.kill(process)
    await until_all_follow(cluster)
    return the_loop().time() - before


# The name decides which scopes the third process is to have. A minute of leases takes a second.
@pytest.mark.parametrize(
    ("lease", "name"), [*product([5], ["a", "b", "c", "d"]), (10, "a"), (60, "b")]
)
@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("most", [0, 3], ids=["any number", "max_scopes"])
async def test_another_process_follows_in_time(
    lease: float, how: str, most: int, name: str
) -> None:
    """Also if the process that ranks first has as many scopes as it may have."""
    async with cluster_of(*SCOPES, ttl=lease) as cluster:
        one = cluster.start("one", max_scopes=most)
        cluster.start("two", max_scopes=most)
        await until_all_follow(cluster)
        cluster.start(name, max_scopes=most)
        await anyio.sleep(lease)  # less than the two leases after which scopes move
        most_seconds = 2 if how == "stop" else lease + 1
        assert await end(cluster, one, how) <= most_seconds
        assert not most or max(followed(cluster).values()) == most
    if how == "stop":
        cluster.check_once(*SCOPES)


async def require_rest(cluster: Cluster) -> None:
    """No scope goes to and fro."""
    epochs = [await cluster.epoch(scope) for scope in cluster.drivers]
    await anyio.sleep(4 * TTL)
    assert [await cluster.epoch(scope) for scope in cluster.drivers] == epochs


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("scopes", [("a", "b"), ("orders", "users"), ("x", "y"), SCOPES])
async def test_processes_have_a_fair_share_each_once_they_are_stable(
    scopes: tuple[str, ...], at_once: bool
) -> None:
    async with cluster_of(*scopes) as cluster:
        cluster.start("one")
        if not at_once:
            await until_all_follow(cluster)
        cluster.start("two")
        await anyio.sleep(1.5 * TTL)
        assert at_once or followed(cluster) == {"one": len(scopes)}, "not stable yet"
        await anyio.sleep(2.5 * TTL)
        assert followed(cluster) == {"one": len(scopes) / 2, "two": len(scopes) / 2}
        await require_rest(cluster)
    cluster.check_once(*scopes)


async def test_processes_that_configure_different_scopes_share_those_that_they_have_in_common() -> (
    None
):
    async with cluster_of(*SCOPES) as cluster:
        cluster.start("one", scopes=SCOPES[:4])
        cluster.start("two", scopes=SCOPES[2:])
        cluster.start("three", scopes=SCOPES[4:])
        await until_all_follow(cluster)
        await anyio.sleep(4 * TTL)
        assert followed(cluster) == {"one": 2, "two": 2, "three": 2}
        await require_rest(cluster)


@pytest.mark.parametrize(
    ("pause", "surge"), [(1.0, False), (40.0, False), (1.0, True), (15.0, True)]
)
async def test_each_scope_moves_once_or_twice(pause: float, surge: bool) -> None:
    """In each of several rolling updates, and nothing is handed over twice.

    With a ``surge``, as Kubernetes does it, the new process is there before the old one ends, and
    it has another name.
    """
    names = [f"scope-{n}" for n in range(4)]
    moves: list[int] = []
    async with cluster_of(*names) as cluster:
        running = [cluster.start(name) for name in ("one", "two", "three")]
        await anyio.sleep(4 * TTL)
        for round_ in range(4):
            before = {name: await cluster.epoch(name) for name in names}
            for at, old in enumerate(tuple(running)):
                if surge:
                    running[at] = cluster.start(f"{old.name.partition('-')[0]}-{round_}")
                    await anyio.sleep(3)
                cluster.terminate(old)
                await until(lambda old=old: old.stopped)  # type: ignore[misc]
                if not surge:
                    running[at] = cluster.start(old.name)
                await anyio.sleep(pause)
            await anyio.sleep(4 * TTL)
            moves.extend([await cluster.epoch(name) - before[name] for name in names])
    cluster.check_once(*names)
    assert set(moves) <= {1, 2}
