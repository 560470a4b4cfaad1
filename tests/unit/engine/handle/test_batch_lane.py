"""The lane of a handler of sequences: contiguous calls of bounded size, in order."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.engine.handle.batch_lane import BatchLane
from tailrace.engine.handle.call_size import GROWS_AFTER, CallSize
from tailrace.engine.ports import PerBatch
from tailrace.engine.position.place import Place
from tailrace.errors import AttemptTimedOut, BatchTooLarge
from tailrace.event import ChangeEvent, Slice
from tailrace.event.batch import join
from tests.scripted.wire import in_order
from tests.unit.engine.changes import (
    Noting,
    batch,
    change,
    delivery,
    line_of,
    number,
    places,
    settle,
    token,
    until,
)


class Calls:
    """A handler that records each call; while ``gate`` is an event that is not set, it waits."""

    def __init__(self, *failing: int) -> None:
        self.failing = failing
        self.calls: list[list[int]] = []
        self.ended = 0
        self.gate: anyio.Event | None = None

    async def __call__(self, events: Sequence[ChangeEvent]) -> None:
        self.calls.append([number(event) for event in events])
        if self.gate is not None:
            await self.gate.wait()
        if set(self.failing) & set(self.calls[-1]):
            raise RuntimeError("no")
        self.ended += 1

    @property
    def events(self) -> list[int]:
        return [n for call in self.calls for n in call]


class Lane:
    """A batch lane, and the places that it finished."""

    def __init__(
        self, handler: Any, batch_size: int = 100, wants: Any = None, **fields: Any
    ) -> None:
        watermark = Noting()
        self.finished = watermark.finished
        to = delivery(on_events=handler, batch_size=batch_size, **fields)
        self.lane = BatchLane(to, wants, watermark)

    async def all(self, line: list[Place]) -> None:
        """Feeds everything before the run, and closes."""
        self.lane.feed(line)
        self.lane.close()
        await self.lane.run()


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.integers(1, 150), max_size=8),
    st.one_of(st.integers(1, 10), st.integers(1, 400)),
    st.data(),
)
async def test_calls_are_contiguous_and_of_bounded_size(
    sizes: list[int], batch_size: int, data: st.DataObject
) -> None:
    """Whatever arrives during a call; each place is finished once, in order."""
    calls = Calls()
    lane = Lane(calls, batch_size)
    first = 0
    replies = []
    for size in sizes:
        replies.append(batch([change(n) for n in range(first, first + size)]))
        first += size
    line = places(*replies)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        while line:
            many = data.draw(st.integers(1, len(line)))
            lane.lane.feed(line[:many])
            line = line[many:]
            for _ in range(data.draw(st.integers(0, 2))):
                await anyio.lowlevel.checkpoint()
        lane.lane.close()
    assert calls.events == list(range(first))
    assert all(0 < len(call) <= batch_size for call in calls.calls)
    assert lane.finished == list(range(len(lane.finished)))
    assert len(lane.finished) == sum(-(-size // 64) for size in sizes)
    assert lane.lane.backlog == 0


async def test_unwanted_events_are_left_out_and_their_places_finish() -> None:
    calls = Calls()
    lane = Lane(calls, wants=lambda event: number(event) in (3, 4, 300))
    await lane.all(line_of([change(n) for n in range(400)]))
    assert calls.events == [3, 4, 300]
    assert lane.finished == list(range(7))


@pytest.mark.parametrize("place", [10, 100], ids=["several places", "one place"])
async def test_a_halted_lane_finishes_the_running_call_and_begins_none(place: int) -> None:
    calls = Calls()
    calls.gate = anyio.Event()
    lane = Lane(calls, batch_size=10)
    events = [change(n) for n in range(100)]
    slice_ = Slice(*join([in_order(event) for event in events[:place]]))
    lane.lane.feed([Place(0, slice_, 1, place, slice_.size), *line_of(events[place:], 10)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        await until(lambda: len(calls.calls) == 1)
        lane.lane.halt()
        await settle()
        assert calls.ended == 0
        calls.gate.set()
    assert calls.events == list(range(10))
    assert lane.lane.unhandled().get(0, set()) == {token(n) for n in range(10, place)}


async def test_a_halted_lane_begins_no_call_with_what_waits_for_more() -> None:
    calls = Calls()
    lane = Lane(calls, 1000, linger_seconds=3600)
    lane.lane.feed(line_of([change(0)]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        await settle()
        lane.lane.halt()
    assert calls.calls == []


async def test_cancellation_reaches_the_call_and_finishes_nothing() -> None:
    calls = Calls()
    calls.gate = anyio.Event()
    lane = Lane(calls)
    lane.lane.feed(line_of([change(0)]))
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lane.lane.run)
            await until(lambda: len(calls.calls) == 1)
            scope.cancel()
    assert (calls.ended, lane.finished) == (0, [])


async def test_a_call_waits_until_so_many_bytes_are_there() -> None:
    calls = Calls()
    size = batch([change(0)]).size
    lane = Lane(calls, 1000, linger_seconds=3600, batch_bytes=10 * size)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        line = line_of([change(n) for n in range(100, 118)], batch_size=3)
        lane.lane.feed(line[:2])
        await settle()
        assert (calls.calls, lane.lane.backlog) == ([], 0)
        lane.lane.feed(line[2:])
        await until(lambda: len(calls.calls) == 1)
        await settle()
        assert calls.calls == [list(range(100, 109))]  # not one place more than the bytes need
        lane.lane.close()
    assert calls.events == list(range(100, 118))


async def test_a_call_waits_until_nothing_more_can_come() -> None:
    calls = Calls()
    lane = Lane(calls, 1000, linger_seconds=3600)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        lane.lane.feed(line_of([change(0)]))
        await settle()
        assert calls.calls == []
        lane.lane.flush()
        await until(lambda: calls.calls == [[0]])
        lane.lane.flush()
        lane.lane.feed(line_of([change(1)]))  # more came after all: it may wait again
        await settle()
        assert calls.calls == [[0]]
        lane.lane.close()


async def test_whole_places_are_never_divided() -> None:
    calls = Calls()
    lane = Lane(calls, 3, whole_transactions=True)
    await lane.all(line_of([change(n) for n in range(20)], batch_size=5))
    assert calls.calls == [list(range(at, at + 5)) for at in range(0, 20, 5)]


@pytest.mark.parametrize("wants", [None, lambda event: number(event) % 2 == 0], ids=["all", "some"])
async def test_a_handler_of_bytes_gets_the_same_events(wants: Any) -> None:
    got: list[list[int]] = []

    async def take(documents: list[bytes]) -> None:
        got.append([number(ChangeEvent.from_raw(raw)) for raw in documents])
        documents.clear()  # the handler owns the list

    lane = Lane(take, 100, wants, raw=True)
    await lane.all(line_of([change(n) for n in range(150)]))
    expected = [n for n in range(150) if wants is None or n % 2 == 0]
    assert [n for call in got for n in call] == expected
    assert all(len(call) <= 100 for call in got)
    assert lane.finished == [0, 1, 2]


class Limited(Calls):
    """A destination that takes at most so many events in a call."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    async def __call__(self, events: Sequence[ChangeEvent]) -> None:
        await super().__call__(events)
        if len(events) > self.most:
            raise BatchTooLarge("a limit")


async def test_a_call_over_a_limit_of_the_destination_is_made_in_smaller_ones() -> None:
    """No event is at fault: nothing becomes a dead letter, and the order stays."""
    limited, line = Limited(12), line_of([change(n) for n in range(400)], 100)
    lane = Lane(limited, batch_size=100)
    await lane.all(line)
    worked = [call for call in limited.calls if len(call) <= limited.most]
    assert [n for call in worked for n in call] == list(range(400))
    assert set(lane.finished) == {place.number for place in line}
    assert [len(call) for call in limited.calls][:5] == [100, 50, 25, 12, 12]
    assert len(limited.calls) - len(worked) < 8  # later calls are small at once, and grow again


@pytest.mark.parametrize("timed_out", [False, True])
async def test_calls_are_divided_down_to_one_event(timed_out: bool) -> None:
    """One that is too slow alone is tried as every failed call is."""
    size = CallSize("orders", "odd", PerBatch(Calls(), events=8))
    error = AttemptTimedOut("late") if timed_out else BatchTooLarge("late")
    (place,) = line_of([change(n) for n in range(5)])
    assert place.slice is not None
    events = place.slice.events()
    units = [[event] for event in events]
    assert not size.reduced([events[:1]], error)
    assert not size.reduced([events], error)  # one transaction
    assert not size.reduced(units, RuntimeError())
    assert size.reduced(units, error)
    assert size.divided(units) == (events[:2], units[2:])
    assert size.divided([events, units[0]]) == (events, [units[0]])
    for expected in (4, 8):
        for _ in range(GROWS_AFTER):
            size.worked(1)  # not a full call
            assert size.most == expected // 2
            size.worked(expected // 2)
        assert size.most == expected
