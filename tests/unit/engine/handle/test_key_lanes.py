"""Batches ordered by key: several calls at once, each document in order, barriers alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.engine.handle.key_lanes import KeyLanes
from tailrace.engine.position.watermark import Watermark
from tailrace.event import ChangeEvent
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.stream import Interrupt
from tests.handlers import handler
from tests.unit.engine.changes import (
    HALT,
    NOTHING,
    admit,
    batch,
    change,
    ddl,
    delivery_to,
    number,
    set_aside,
    settle,
    token,
    until,
)


class Lane:
    """A lane of at most ``workers`` calls at once, with its calls and its watermark."""

    def __init__(
        self,
        *failing: int,
        workers: int = 3,
        batch_size: int = 4,
        wants: Any = None,
        failure: FailurePolicy = HALT,
        **fields: Any,
    ) -> None:
        self.failing = failing
        self.pauses = [0]
        self.gate: anyio.Event | None = None
        self.calls: list[list[int]] = []
        self.running: list[list[int]] = []
        self.most = 0
        self.handled: list[int] = []
        self.letters = MemoryDeadLetters()
        self.stop = Interrupt()
        to = handler(
            "probe", on_events=self._write, batch_size=batch_size, failure=failure, **fields
        )
        self.watermark = Watermark(NOTHING)
        delivery = delivery_to(to, letters=self.letters, stop=self.stop)
        self.lane = KeyLanes(delivery, wants, self.watermark, workers=workers)

    async def _write(self, events: Sequence[ChangeEvent]) -> None:
        numbers = [number(event) for event in events]
        self.calls.append(numbers)
        self.running.append(numbers)
        self.most = max(self.most, len(self.running))
        try:
            if self.gate is not None:
                await self.gate.wait()
            for _ in range(self.pauses[numbers[0] % len(self.pauses)]):
                await anyio.lowlevel.checkpoint()
            if set(self.failing) & set(numbers):
                raise RuntimeError("no")
            self.handled += numbers
        finally:
            self.running.remove(numbers)

    def feed(self, *documents: Any, rows: bool = False) -> None:
        places = admit(self.watermark, batch(list(documents)))
        for place in places:
            place.rows = rows
        self.lane.feed(places)


# An event is the number of a document, or a barrier.
schedules = st.lists(st.one_of(st.integers(0, 6), st.none()), max_size=120)


@settings(deadline=None, max_examples=120)
@given(
    schedules,
    st.lists(st.integers(0, 5), min_size=1, max_size=9),
    st.integers(1, 6),
    st.integers(1, 9),
    st.sampled_from([1, 3, 64]),
    st.data(),
)
async def test_each_document_comes_in_order_and_no_position_passes_an_unfinished_event(
    schedule: list[int | None],
    pauses: list[int],
    workers: int,
    batch_size: int,
    reply: int,
    data: st.DataObject,
) -> None:
    """However each call suspends, and whenever replies come."""
    lane = Lane(workers=workers, batch_size=batch_size)
    lane.pauses = pauses
    count = len(schedule)
    documents = [
        ddl(n) if key is None else change(n, f"document {key}") for n, key in enumerate(schedule)
    ]

    def check() -> None:
        """The watermark is after handled events only, and no document is in two calls."""
        reached = lane.watermark.position.event_token
        before = next((n for n in range(count) if token(n) == reached), -1)
        assert set(range(before + 1)) <= set(lane.handled)
        inside = [schedule[n] for call in lane.running for n in dict.fromkeys(call)]
        keys = [{schedule[n] for n in call} for call in lane.running]
        assert sum(map(len, keys)) == len(set(inside))
        assert None not in inside or len(lane.running) == 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        for at in range(0, count, reply):
            lane.feed(*documents[at : at + reply])
            for _ in range(data.draw(st.integers(0, 3), label="turns before the next reply")):
                await anyio.lowlevel.checkpoint()
                check()
        lane.lane.close()
        while lane.running:
            await anyio.lowlevel.checkpoint()
            check()
    assert sorted(lane.handled) == list(range(count))
    assert [n for call in lane.calls for n in call if schedule[n] is None] == [
        n for n, key in enumerate(schedule) if key is None
    ]
    for key in set(schedule) - {None}:
        mine = [n for n, other in enumerate(schedule) if other == key]
        assert [n for call in lane.calls for n in call if schedule[n] == key] == mine
    for barrier in (n for n, key in enumerate(schedule) if key is None):
        at = lane.calls.index([barrier])
        assert {n for call in lane.calls[:at] for n in call} == set(range(barrier))
    assert all(len(call) <= batch_size for call in lane.calls)
    assert lane.most <= workers
    assert lane.watermark.empty
    assert lane.lane.unhandled() == {}
    assert lane.lane.backlog == 0


async def test_calls_of_different_documents_run_at_once() -> None:
    lane = Lane(workers=3, batch_size=5)
    lane.gate = anyio.Event()
    lane.feed(*(change(n) for n in range(200)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        await until(lambda: len(lane.running) == 3)
        await settle()
        assert len(lane.calls) == 3
        lane.gate.set()
        lane.lane.close()
    assert len(lane.handled) == 200


async def test_a_stop_begins_no_call_and_leaves_what_running_calls_handled() -> None:
    lane = Lane(workers=2, batch_size=3)
    lane.gate = anyio.Event()
    lane.feed(*(change(n) for n in range(40)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        await until(lambda: len(lane.calls) == 2)
        lane.lane.halt()
        lane.gate.set()
    assert len(lane.calls) == 2
    unhandled = lane.lane.unhandled()[0]
    assert unhandled == {token(n) for n in range(40) if n not in lane.handled}


async def test_only_the_failing_event_becomes_a_dead_letter_and_its_document_waits() -> None:
    policy = FailurePolicy(attempts=2, backoff=Backoff(0, 0))
    lane = Lane(5, failure=policy)
    lane.feed(*(change(n, n % 4) for n in range(20)))
    lane.lane.close()
    await lane.lane.run()
    aside = await set_aside(lane.letters)
    assert aside == [5, 9, 13, 17]
    assert sorted(lane.handled) == [n for n in range(20) if n not in aside]
    assert lane.watermark.empty


async def test_rows_and_changes_never_share_a_call() -> None:
    lane = Lane(workers=1, batch_size=100)
    lane.feed(change(0), change(1))
    lane.feed(change(2), change(3), rows=True)
    lane.feed(change(4))
    lane.lane.close()
    await lane.lane.run()
    assert lane.calls == [[0, 1], [2, 3], [4]]


async def test_a_barrier_gets_a_call_of_its_own_kind() -> None:
    seen: list[int] = []

    async def on_ddl(event: ChangeEvent, identity: Any) -> None:
        seen.append(number(event))

    lane = Lane(workers=2, on_ddl=on_ddl)
    lane.feed(change(0), ddl(1), change(2))
    lane.lane.close()
    await lane.lane.run()
    assert (lane.calls, seen) == ([[0], [2]], [1])


@pytest.mark.parametrize("ends", ["flush", "close"])
async def test_a_lingering_call_waits_until_nothing_more_can_come(ends: str) -> None:
    lane = Lane(workers=2, batch_size=100, linger_seconds=3600)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lane.run)
        lane.feed(*(change(n) for n in range(6)))
        await settle()
        assert (lane.calls, lane.lane.backlog) == ([], 0)
        getattr(lane.lane, ends)()
        await until(lambda: len(lane.handled) == 6)
        lane.lane.close()


async def test_a_lingering_call_begins_when_it_is_full_or_its_time_is_over() -> None:
    size = ChangeEvent.from_raw(next(batch([change(0)]).raw())).size
    full = Lane(workers=1, batch_size=100, batch_bytes=2 * size, linger_seconds=3600)
    late = Lane(workers=1, batch_size=100, linger_seconds=0.01)
    async with anyio.create_task_group() as tasks:
        for lane in (full, late):
            tasks.start_soon(lane.lane.run)
            lane.feed(*(change(n) for n in range(3)))
        await until(lambda: full.calls == [[0, 1]] and late.calls == [[0, 1, 2]])
        full.lane.close()
        late.lane.close()
    assert full.calls == [[0, 1], [2]]


async def test_unwanted_events_come_to_no_call_and_their_places_finish() -> None:
    lane = Lane(wants=lambda event: number(event) in (3, 70))
    for at in range(0, 90, 10):
        lane.feed(*(change(n) for n in range(at, at + 10)))
    lane.lane.close()
    await lane.lane.run()
    assert sorted(lane.handled) == [3, 70]
    assert lane.watermark.empty


async def test_an_unreadable_event_fails_the_lane() -> None:
    lane = Lane()
    places = admit(lane.watermark, batch([change(0)]))
    broken = replace(places[0].slice, buffer=b"\xff" * len(places[0].slice.buffer))  # type: ignore[union-attr, type-var]
    places[0].slice = broken
    lane.lane.feed(places)
    lane.lane.close()
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever BSON says
        await lane.lane.run()
    assert lane.calls == []
