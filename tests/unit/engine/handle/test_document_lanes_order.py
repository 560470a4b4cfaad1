"""Order per document, parallelism across documents, and barriers."""

from collections import Counter
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.engine.handle.document_lanes import DocumentLanes
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.position.watermarks import NEAR_PLACES, Watermarks
from tailrace.event import ChangeEvent
from tests.unit.engine.changes import (
    NOTHING,
    Document,
    Noting,
    batch,
    change,
    ddl,
    delivery,
    line_of,
    number,
    settle,
    until,
)

BARRIER = repr(None)


class Probe:
    """A handler that suspends as told, and records which events were inside together."""

    def __init__(self, pauses: list[int] | None = None) -> None:
        self.pauses = pauses or [0]
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.inside: Counter[Any] = Counter()
        self.most = 0
        self.overlapping: list[Any] = []
        """Documents with two calls at once, and barriers beside any other call."""

    async def __call__(self, event: ChangeEvent) -> None:
        n = number(event)
        key = repr(event.document_key)
        if self.inside[key] or self.inside[BARRIER] or (key == BARRIER and self.inside.total()):
            self.overlapping.append(key)
        self.begun.append(n)
        self.inside[key] += 1
        self.most = max(self.most, self.inside.total())
        for _ in range(self.pauses[n % len(self.pauses)]):
            await anyio.lowlevel.checkpoint()
        self.inside[key] -= 1
        self.ended.append(n)


class Lane:
    """Document lanes, and what they report."""

    def __init__(self, handler: Any, workers: int = 8, wants: Any = None) -> None:
        self.watermark = Noting()
        self.finished = self.watermark.finished
        self.lanes = DocumentLanes(delivery(handler), wants, self.watermark, workers=workers)

    @property
    def opened(self) -> int:
        return self.watermark.begun

    async def run_all(self, documents: list[Document], batch_size: int = 64) -> None:
        """Feeds everything before the run, and closes."""
        self.lanes.feed(line_of(documents, batch_size))
        self.lanes.close()
        await self.lanes.run()


# An event is the number of a document, or a barrier.
schedules = st.lists(st.one_of(st.integers(0, 6), st.none()), max_size=150)
pauses = st.lists(st.integers(0, 5), min_size=1, max_size=12)


def documents_of(schedule: list[int | None]) -> list[Document]:
    return [
        ddl(n) if key is None else change(n, f"document {key}") for n, key in enumerate(schedule)
    ]


@settings(deadline=None, max_examples=120)
@given(schedules, pauses, st.integers(1, 9), st.sampled_from([1, 3, 64]), st.data())
async def test_each_document_comes_in_order_and_a_barrier_waits_for_all_and_is_waited_for(
    schedule: list[int | None],
    pauses: list[int],
    workers: int,
    batch_size: int,
    data: st.DataObject,
) -> None:
    """However each call suspends, and whenever replies come."""
    probe = Probe(pauses)
    lane = Lane(probe, workers)
    line = line_of(documents_of(schedule), batch_size)
    early = data.draw(st.integers(0, len(line)), label="places fed before the run")
    lane.lanes.feed(line[:early])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lanes.run)
        for place in line[early:]:
            for _ in range(data.draw(st.integers(0, 3), label="turns before the next place")):
                await anyio.lowlevel.checkpoint()
            lane.lanes.feed([place])
        lane.lanes.close()
    assert probe.overlapping == []
    assert sorted(probe.ended) == list(range(len(schedule)))
    for key in set(schedule) - {None}:
        mine = [n for n, other in enumerate(schedule) if other == key]
        assert [n for n in probe.begun if schedule[n] == key] == mine
    for barrier in (n for n, key in enumerate(schedule) if key is None):
        assert set(probe.begun[:barrier]) == set(range(barrier))
        assert probe.begun[barrier] == barrier
        assert set(probe.ended[:barrier]) == set(range(barrier))
        assert probe.ended[barrier] == barrier
    assert probe.most <= workers
    assert sorted(lane.finished) == [place.number for place in line]
    assert lane.opened == len(line)
    assert lane.lanes.backlog == 0


@pytest.mark.parametrize("workers", [1, 2, 7, 64])
async def test_different_documents_overlap_up_to_the_number_of_workers(workers: int) -> None:
    """A handler that waits is called by all workers at the same time, and by no more."""
    gate = anyio.Event()
    inside = 0

    async def wait(event: ChangeEvent) -> None:
        nonlocal inside
        inside += 1
        await gate.wait()

    lane = Lane(wait, workers)
    lane.lanes.feed(line_of([change(n) for n in range(200)]))
    lane.lanes.close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lanes.run)
        await until(lambda: inside == workers)
        await settle()
        assert inside == workers
        gate.set()
    assert inside == 200


async def test_a_handler_that_never_suspends_does_not_wake_all_workers() -> None:
    """One slice belongs to one worker; the others would only cost task switches."""
    seen = []

    async def note(event: ChangeEvent) -> None:
        seen.append(number(event))
        names.add(anyio.get_current_task().name)

    names: set[str | None] = set()
    lane = Lane(note, workers=64)
    await lane.run_all([change(n) for n in range(100 * 64)])
    assert seen == list(range(6400))
    assert names == {"probe worker 1"}


async def test_one_busy_document_does_not_load_the_whole_stream_into_memory() -> None:
    """The others continue as soon as fewer events wait for it, not only when none does."""
    hot_may: set[int] = set()
    handled: list[int] = []
    others: list[int] = []

    async def wait(event: ChangeEvent) -> None:
        n = number(event)
        if event.document_key != {"_id": "hot"}:
            others.append(n)
            return
        while n not in hot_may:
            await anyio.lowlevel.checkpoint()
        handled.append(n)

    lane = Lane(wait, workers=8)
    hot = [change(n, "hot") for n in range(640)]
    lane.lanes.feed(line_of([*hot[:320], *map(change, range(1000, 1064)), *hot[320:]]))
    lane.lanes.close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lanes.run)
        await settle()
        assert (lane.lanes.backlog, others) == (6, [])
        for n in range(100):
            hot_may.add(n)
            await until(lambda n=n: n in handled)  # type: ignore[misc]
        await settle()
        assert len(others) == 64
        assert len(handled) == 100
        hot_may.update(range(640))
    assert handled == list(range(640))
    assert sorted(lane.finished) == list(range(11))


async def test_other_tasks_get_their_turn_beside_a_handler_that_never_suspends() -> None:
    handled = 0
    turns = []

    async def count(event: ChangeEvent) -> None:
        nonlocal handled
        handled += 1

    async def beside() -> None:
        while handled < 640:
            turns.append(handled)
            await anyio.lowlevel.checkpoint()

    lane = Lane(count, workers=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside)
        tasks.start_soon(lane.run_all, [change(n) for n in range(640)])
    assert len(turns) >= 9


async def test_an_unwanted_event_without_a_key_is_no_barrier() -> None:
    gate = anyio.Event()
    begun: list[int] = []

    async def wait(event: ChangeEvent) -> None:
        begun.append(number(event))
        await gate.wait()

    lane = Lane(wait, wants=lambda event: event.document_key is not None)
    lane.lanes.feed(line_of([change(0), ddl(1), change(2)]))
    lane.lanes.close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lanes.run)
        await until(lambda: begun == [0, 2])
        gate.set()


@pytest.mark.parametrize(("count", "kept"), [(NEAR_PLACES - 1, 64), (NEAR_PLACES, 0)])
async def test_handlers_share_keys_only_while_they_are_near_each_other(
    count: int, kept: int
) -> None:
    """Else the keys of all that waits for a slow one would be in memory."""

    async def ignore(event: ChangeEvent) -> None: ...

    marks = Watermarks(None, lambda freed: None)
    slices = batch([change(n) for n in range(64 * count)]).slices(64)
    holds, lanes = marks.holds(slices, 2), list[DocumentLanes]()
    for name in ("ahead", "behind"):
        marks.each[name] = line = Watermark(NOTHING, marks.moved, near=marks.near)
        lanes.append(DocumentLanes(delivery(ignore), None, line))
        lanes[-1].feed(line.admit(slices, None, None, holds=holds))
        lanes[-1].close()
    await lanes[0].run()
    assert [len(slice_.keys) for slice_ in slices] == [kept] * count
    await lanes[1].run()
    assert marks.empty
    assert marks.size == 0
