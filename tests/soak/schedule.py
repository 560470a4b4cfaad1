"""What is done to a system, in turns."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from tests.soak.plan import SoakPlan
from tests.soak.system import SoakSystem

FLAPPING = "cache"


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """``seconds`` are those since the start; the functions of an action take turns."""

    what: str
    seconds: float
    every: float
    acts: Iterator[Callable[[], str | None]]


def planned_actions(system: SoakSystem, plan: SoakPlan) -> list[PlannedAction]:
    """Elections come between two restarts, and snapshots and outages between those."""
    flapping = system.copies[FLAPPING]

    def alternately(*acts: Callable[[], object]) -> Iterator[Callable[[], str | None]]:
        return itertools.cycle(acts)  # type: ignore[arg-type]

    every, outage = plan.restart_every, plan.outage_every
    restarts = alternately(
        lambda: system.restart(signal.SIGTERM), lambda: system.restart(signal.SIGKILL)
    )
    elections = alternately(system.elect, system.kill_primary)
    actions = [
        PlannedAction("restart", every, every, restarts),
        PlannedAction("election", every / 2, every, elections),
        PlannedAction("snapshot", every * 0.75, plan.snapshot_every, alternately(system.snapshot)),
        PlannedAction("outage", outage / 2, outage, alternately(flapping.stop, flapping.pause)),
        PlannedAction("outage over", outage / 2 + plan.outage, outage, alternately(flapping.start)),
    ]
    return [action for action in actions if action.what not in plan.without]


def in_order(actions: list[PlannedAction], end: float) -> Iterator[tuple[float, PlannedAction]]:
    """The actions and their times, before the end."""
    queue: list[tuple[float, int]] = []
    for number, action in enumerate(actions):
        heappush(queue, (action.seconds, number))
    while queue and queue[0][0] < end:
        seconds, number = heappop(queue)
        yield seconds, actions[number]
        heappush(queue, (seconds + actions[number].every, number))
