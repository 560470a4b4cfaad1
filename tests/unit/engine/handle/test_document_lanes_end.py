"""How document lanes end: by closing, by a failure, by cancellation."""

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.event import ChangeEvent
from tests.guards import against_hanging
from tests.unit.engine.changes import (
    batch,
    change,
    corrupt,
    line_of,
    number,
    places,
    settle,
    token,
    until,
)
from tests.unit.engine.handle.test_document_lanes_order import Lane


class Gates:
    """A handler whose calls wait for their gates; some calls fail when their gate opens."""

    def __init__(self, *failing: int) -> None:
        self.failing = failing
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.open: set[int] = set()
        self.all_open = False

    async def __call__(self, event: ChangeEvent) -> None:
        n = number(event)
        self.begun.append(n)
        while not (self.all_open or n in self.open):
            await anyio.lowlevel.checkpoint()
        if n in self.failing:
            raise RuntimeError(f"event {n}")
        self.ended.append(n)


class EndingLane(Lane):
    """Document lanes, and the error of their run."""

    def __init__(self, handler: Any, workers: int = 4) -> None:
        super().__init__(handler, workers)
        self.raised: list[BaseException] = []
        self.over = False

    async def run(self) -> None:
        try:
            await self.lanes.run()
        except Exception as error:  # noqa: BLE001 - the tests look at it
            self.raised.append(error)
        self.over = True


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 6),
    st.integers(1, 12),
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.integers(0, 30),
)
async def test_a_halted_lane_finishes_the_running_calls_and_begins_none(
    workers: int, documents: int, pauses: list[int], turns: int
) -> None:
    """At any moment; what it tells as unhandled is exactly what no call has handled."""
    begun: list[int] = []
    handled: set[int] = set()

    async def pause(event: ChangeEvent) -> None:
        begun.append(number(event))
        for _ in range(pauses[number(event) % len(pauses)]):
            await anyio.lowlevel.checkpoint()
        handled.add(number(event))

    lane = EndingLane(pause, workers)
    lane.lanes.feed(line_of([change(n, n % documents) for n in range(40)], batch_size=8))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.run)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        at_the_halt = len(begun)
        lane.lanes.halt()
    assert lane.raised == []
    assert len(begun) == at_the_halt
    assert handled == set(begun)
    opened = range(8 * (lane.lanes.opened + 1))
    unhandled = {each for left in lane.lanes.unhandled().values() for each in left or ()}
    assert unhandled == {token(n) for n in opened if n not in handled}


async def test_a_failure_starts_nothing_new_and_lets_running_calls_finish() -> None:
    gates = Gates(1)
    lane = EndingLane(gates, workers=3)
    lane.lanes.feed(line_of([change(n) for n in range(50)], batch_size=1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.run)
        await until(lambda: len(gates.begun) == 3)
        gates.open = {1}
        await settle()
        assert sorted(gates.begun) == [0, 1, 2]
        assert not lane.over
        gates.all_open = True
    assert sorted(gates.begun) == [0, 1, 2]
    assert sorted(gates.ended) == [0, 2]
    # A success counts even if another call failed meanwhile; nothing else counts.
    assert sorted(lane.finished) == [0, 2]


@pytest.mark.parametrize("event", [0, 2, 4])
async def test_an_event_that_cannot_be_decoded_is_a_failure(event: int) -> None:
    gates = Gates()
    gates.all_open = True
    lane = EndingLane(gates)
    broken = corrupt(batch([change(n) for n in range(5)]), event)
    lane.lanes.feed(places(batch([change(9)]), broken, batch([change(8)])))
    with against_hanging():
        await lane.run()
    assert gates.begun == [9, *range(event)]
    assert lane.finished == [0]
    assert len(lane.raised) == 1
