"""Processes that are replaced one after another, in simulated time."""

import anyio
import pytest

from tests.unit.replicas.cluster import TTL, Cluster
from tests.unit.replicas.simulated_time import simulated


@pytest.mark.parametrize(
    ("pause", "surge"), [(1.0, False), (15.0, False), (40.0, False), (1.0, True), (15.0, True)]
)
def test_each_scope_moves_once_or_twice(pause: float, surge: bool) -> None:
    """In each of several rolling updates, and nothing is handed over twice.

    With a ``surge``, as Kubernetes does it, the new process is there before the old one ends, and
    it has another name.
    """
    names = [f"scope-{n}" for n in range(4)]
    cluster = Cluster(*names)
    moves: list[int] = []

    async def script() -> None:
        running = [cluster.start(name) for name in ("one", "two", "three")]
        await anyio.sleep(4 * TTL)
        for round_ in range(4):
            before = {name: await cluster.epoch(name) for name in names}
            for at, old in enumerate(tuple(running)):
                if surge:
                    running[at] = cluster.start(f"{old.name.partition('-')[0]}-{round_}")
                    await anyio.sleep(3)
                cluster.terminate(old)
                while not old.stopped:  # noqa: ASYNC110 - no event tells it
                    await anyio.sleep(0.1)
                if not surge:
                    running[at] = cluster.start(old.name)
                await anyio.sleep(pause)
            await anyio.sleep(4 * TTL)
            moves.extend([await cluster.epoch(name) - before[name] for name in names])

    simulated(cluster.run, script)
    for name in names:
        cluster.check(name)
        events = [each.event for each in cluster.handed_over if each.scope == name]
        assert events == sorted(set(events)), "a clean stop repeats nothing"
    assert set(moves) <= {1, 2}
