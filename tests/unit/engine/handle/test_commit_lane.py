"""The lane of a handler that commits: events are taken at once, and finished by the commit."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.engine.handle.commit_delivery import CommitDelivery
from tailrace.engine.handle.commit_lane import CommitLane
from tailrace.engine.ports import Commit, RunIdentity
from tailrace.engine.position.place import Place
from tailrace.errors import CheckpointError, HandlerFailed
from tailrace.event import ChangeEvent
from tailrace.observe.handler_recorder import HandlerRecorder
from tests.handlers import handler
from tests.unit.engine.changes import (
    Noting,
    batch,
    change,
    delivery_to,
    line_of,
    number,
    places,
    settle,
    until,
)

NEVER = 3600.0


class Lane:
    """A commit lane, and a handler that records what it takes and commits.

    It fails at what ``failing`` names: an event, or ``"commit"``.
    """

    def __init__(
        self,
        events: int = 10**6,
        size: int = 10**9,
        seconds: float = NEVER,
        wants: Any = None,
        batch_size: int = 1000,
        **fields: Any,
    ) -> None:
        self.failing: set[Any] = set()
        self.error: Exception = CheckpointError("the disk is full")
        self.taken: list[int] = []
        self.commits: list[list[int]] = []
        watermark = Noting()
        self.took, self.held = watermark.taken, watermark.held
        self.committed = watermark.finished
        self.recorder = HandlerRecorder()
        commit = Commit(self._commit, events, size, seconds, held=lambda identity: len(self.taken))
        lake = handler("lake", on_events=self._take, batch_size=batch_size, commit=commit, **fields)
        to = delivery_to(lake, recorder=self.recorder)
        assert isinstance(to, CommitDelivery)
        self.lane = CommitLane(to, wants, watermark)

    async def _take(self, events: Sequence[ChangeEvent]) -> None:
        numbers = [number(event) for event in events]
        if self.failing & set(numbers):
            raise self.error
        self.taken += numbers

    async def _commit(self, identity: RunIdentity) -> None:
        await anyio.lowlevel.checkpoint()
        if "commit" in self.failing:
            raise self.error
        self.commits.append(self.taken)
        self.taken = []

    async def all(self, line: list[Place]) -> None:
        self.lane.feed(line)
        self.lane.close()
        await self.lane.run()


async def test_places_are_taken_and_then_committed_in_their_order() -> None:
    lane = Lane(events=4)
    await lane.all(line_of([change(n) for n in range(10)], batch_size=2))
    assert lane.commits == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert lane.took == lane.committed == [0, 1, 2, 3, 4]
    assert lane.recorder.outcomes == {"ok": 10, "error": 0, "dead_letter": 0}
    assert sum(lane.recorder.counts) == 3, "a commit and what it took are one call"


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 9), max_size=12),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 20),
)
async def test_no_commit_is_larger_than_is_asked_unless_one_place_is(
    sizes: list[int], events: int, most: int, batch_size: int
) -> None:
    one = batch([change(0)]).size
    lane = Lane(events, most * one, batch_size=batch_size)
    first, line = 0, []
    for size in sizes:
        line.append(batch([change(n) for n in range(first, first + size)]))
        first += size
    await lane.all(places(*line))
    assert [n for commit in lane.commits for n in commit] == list(range(first))
    bound = min(events, most)
    assert all(len(commit) <= bound or len(commit) in sizes for commit in lane.commits)
    # A commit is not smaller than necessary either: the next place had no room in it.
    ends = [commit[-1] + 1 for commit in lane.commits[:-1]]
    starts = {sum(sizes[:at]): size for at, size in enumerate(sizes)}
    assert all(len(c) + starts[e] > bound for c, e in zip(lane.commits, ends, strict=False))


async def test_an_idle_lane_commits_when_the_time_is_over() -> None:
    lane = Lane(seconds=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        lane.lane.feed(places(batch([change(0)])))
        await until(lambda: lane.commits == [[0]])
        await settle()
        lane.lane.close()
    assert lane.commits == [[0]], "nothing was taken in since"


@pytest.mark.parametrize("failing", [5, "commit"])
@pytest.mark.parametrize("error", [CheckpointError("full"), RuntimeError("a bug")], ids=str)
async def test_a_failure_finishes_nothing_and_is_not_tried_again(
    failing: Any, error: Exception
) -> None:
    lane = Lane(events=4)
    await lane.all(line_of([change(n) for n in range(4)], batch_size=2))
    lane.failing, lane.error = {failing}, error
    lane.lane.feed(line_of([change(n) for n in range(4, 8)], batch_size=2))
    with pytest.raises(CheckpointError if isinstance(error, CheckpointError) else HandlerFailed):
        await lane.lane.run()
    assert lane.commits == [[0, 1, 2, 3]]
    assert lane.committed == [0, 1]
    assert lane.recorder.outcomes["ok"] == 4
    assert lane.recorder.outcomes["error"] > 0


async def test_it_commits_early_when_nothing_more_can_come() -> None:
    lane = Lane()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        lane.lane.feed(places(batch([change(0)])))
        await until(lambda: lane.took == [0])
        lane.lane.flush()
        await until(lambda: lane.commits == [[0]])
        lane.lane.feed(places(batch([change(1)])))  # more came after all: it may wait again
        await settle()
        assert lane.commits == [[0]]
        lane.lane.close()
    assert lane.commits == [[0], [1]]


async def test_a_halted_lane_commits_what_was_accepted_and_takes_no_more() -> None:
    lane = Lane(events=1000, batch_size=2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        line = line_of([change(n) for n in range(10)], batch_size=2)
        lane.lane.feed(line[:1])
        await until(lambda: lane.took == [0])
        lane.lane.feed(line[1:])
        lane.lane.halt()
    assert (lane.took, lane.commits) == ([0], [[0, 1]])
