"""Whatever happens to processes and their commands: one saves, one hands over, and all goes on."""

from dataclasses import dataclass

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.replicas.cluster import TTL, Cluster, Process, cluster_of
from tests.unit.replicas.remote_store import Trouble
from tests.unit.replicas.simulated_time import simulated, until

pytestmark = pytest.mark.simulates

SCOPES = ["orders", "users"]
NAMES = ["a", "b", "c"]
NEVER = float("inf")


@dataclass(frozen=True)
class Event:
    """After so many seconds, something happens to a process."""

    after: float
    process: int
    what: str
    seconds: float


delays = st.sampled_from([0.0, 0.1, 1.0, 4.0, 7.9, 9.0, 12.0, 25.0])
troubles = st.builds(
    Trouble, before=st.one_of(delays, st.just(NEVER)), after=delays, lost=st.booleans()
)
events = st.builds(
    Event,
    after=st.sampled_from([0.0, 0.3, 1.0, 2.7, 5.0, 11.0, 23.0]),
    process=st.integers(0, len(NAMES) - 1),
    what=st.sampled_from(["freeze", "kill", "stop", "silence", "election"]),
    seconds=st.sampled_from([0.5, 3.0, 8.5, 10.5, 30.0]),
)


class Course:
    """Three processes, of which each that ends is started again at once."""

    def __init__(self, happens: list[Event], ways: list[list[Trouble]]) -> None:
        self._happens, self._ways = happens, ways
        self._running: list[Process] = []

    async def run(self) -> None:
        async with cluster_of(*SCOPES) as cluster:
            for name, way in zip(NAMES, self._ways, strict=True):
                self._running.append(cluster.start(name))
                self._running[-1].wire.troubles = way
            async with anyio.create_task_group() as tasks:
                for event in self._happens:
                    await anyio.sleep(event.after)
                    tasks.start_soon(self._happen, cluster, event)
            for process in self._running:
                process.wire.troubles = []
            with anyio.fail_after(6 * TTL):
                await until(lambda: all(self._is_followed(cluster, scope) for scope in SCOPES))

    def _is_followed(self, cluster: Cluster, scope: str) -> bool:
        """Every free scope is taken, and its changes are handed over."""
        handed = (each.event for each in cluster.handed_over if each.scope == scope)
        newest = len(cluster.drivers[scope].oplog) - 1
        return len(cluster.owners(scope)) == 1 and max(handed, default=0) >= newest - 2

    async def _happen(self, cluster: Cluster, event: Event) -> None:
        process = self._running[event.process]
        match event.what:
            case "freeze":
                await cluster.freeze(process, event.seconds)
            case "kill" | "stop":
                if event.what == "kill":
                    cluster.kill(process)
                else:
                    cluster.terminate(process)
                await anyio.sleep(event.seconds)
                if self._running[event.process] is process:
                    self._running[event.process] = cluster.start(process.name)
            case "silence":
                process.wire.troubles += [Trouble(before=NEVER)] * int(event.seconds)
            case "election":  # the next primary's clock may differ by less than the margin
                cluster.shift = (event.seconds % 4) / 4 * 0.2 * TTL


@settings(max_examples=50)
@given(
    st.lists(events, max_size=8), st.lists(st.lists(troubles, max_size=6), min_size=3, max_size=3)
)
def test_any_course(happens: list[Event], of_processes: list[list[Trouble]]) -> None:
    simulated(Course(happens, of_processes).run)
