"""How soon another process follows, for any lease and with full processes, in simulated time."""

from collections import Counter

import anyio
import pytest

from tests.unit.replicas.cluster import TTL, Cluster, Process, until_follows
from tests.unit.replicas.simulated_time import simulated, the_loop

SCOPES = [f"scope-{n}" for n in range(6)]


def followed(cluster: Cluster) -> Counter[str]:
    """How many scopes each process follows, by its name."""
    return Counter(owner for scope in cluster.drivers for owner in cluster.owners(scope))


async def until_all_follow(cluster: Cluster) -> None:
    with anyio.fail_after(10 * cluster.ttl):
        while followed(cluster).total() < len(cluster.drivers):  # noqa: ASYNC110 - no event tells
            await anyio.sleep(0.01)


async def end(cluster: Cluster, process: Process, how: str) -> float:
    """Stops or kills a process; returns the seconds until each scope is followed again."""
    before = the_loop().time()
    if how == "stop":
        cluster.terminate(process)
        while not process.stopped:  # noqa: ASYNC110 - no event tells it
            await anyio.sleep(0.01)
    else:
        cluster.kill(process)
    await until_all_follow(cluster)
    return the_loop().time() - before


@pytest.mark.parametrize("lease", [5, 10, 60])
@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("most", [0, 3], ids=["any number", "max_scopes"])
@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_another_process_follows_in_time(lease: float, how: str, most: int, name: str) -> None:
    """Also if the process that ranks first has as many scopes as it may have."""
    cluster = Cluster(*SCOPES, ttl=lease)

    async def script() -> None:
        one = cluster.start("one", max_scopes=most)
        cluster.start("two", max_scopes=most)
        await until_all_follow(cluster)
        cluster.start(name, max_scopes=most)
        await anyio.sleep(lease)  # less than the two leases after which scopes move
        most_seconds = 2 if how == "stop" else lease + 1
        assert await end(cluster, one, how) <= most_seconds
        assert not most or max(followed(cluster).values()) == most

    simulated(cluster.run, script)
    for scope in SCOPES:
        cluster.check(scope)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("scopes", [("a", "b"), ("orders", "users"), ("x", "y"), SCOPES])
def test_processes_end_with_a_fair_share_each(scopes: tuple[str, ...], at_once: bool) -> None:
    cluster = Cluster(*scopes)

    async def script() -> None:
        one = cluster.start("one")
        if not at_once:
            await until_follows(cluster, scopes[0], one)
        cluster.start("two")
        await anyio.sleep(4 * TTL)
        assert followed(cluster) == {"one": len(scopes) / 2, "two": len(scopes) / 2}
        epochs = [await cluster.epoch(scope) for scope in scopes]
        await anyio.sleep(4 * TTL)
        assert [await cluster.epoch(scope) for scope in scopes] == epochs, "it stays so"

    simulated(cluster.run, script)


def test_processes_that_configure_different_scopes_share_those_that_they_have_in_common() -> None:
    """They agree: no scope goes to and fro."""
    cluster = Cluster(*SCOPES)

    async def script() -> None:
        cluster.start("one", scopes=SCOPES[:4])
        cluster.start("two", scopes=SCOPES[2:])
        cluster.start("three", scopes=SCOPES[4:])
        await until_all_follow(cluster)
        await anyio.sleep(4 * TTL)
        assert followed(cluster) == {"one": 2, "two": 2, "three": 2}
        epochs = [await cluster.epoch(scope) for scope in SCOPES]
        await anyio.sleep(4 * TTL)
        assert [await cluster.epoch(scope) for scope in SCOPES] == epochs

    simulated(cluster.run, script)
    for scope in SCOPES:
        cluster.check(scope)
