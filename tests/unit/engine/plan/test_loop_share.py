"""Handlers that block the event loop: how long a turn of the loop lasts, and who goes on."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from tailrace.engine.handle import attempts
from tailrace.engine.handle.document_lanes import DocumentLanes
from tailrace.engine.plan import loop_share
from tailrace.engine.plan.loop_share import SHARE_SECONDS, LoopShare
from tailrace.event import ChangeEvent
from tests.guards import against_hanging
from tests.unit.engine.changes import Noting, changes, delivery_to, handler, line_of

BLOCK_SECONDS = 0.002
LANES = 8
EVENTS = 64


class Clock:
    """A clock that only blocking calls advance."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_share, "perf_counter", CLOCK)
    monkeypatch.setattr(attempts, "perf_counter", CLOCK)


def block(seconds: float) -> None:
    """As a handler does that calls a library without an asyncio API."""
    CLOCK.now += seconds + 1e-6  # also if their difference is rounded


class Turns:
    """Counts the calls of each of the loop's turns, while its block runs."""

    def __init__(self) -> None:
        self.calls = 0
        self.most = 0

    async def watch(self) -> None:
        while True:
            self.calls = 0
            await anyio.lowlevel.checkpoint()
            self.most = max(self.most, self.calls)


Handle = Callable[[ChangeEvent], Awaitable[None]]


async def at_once(event: ChangeEvent) -> None:
    block(BLOCK_SECONDS)


async def after_an_await(event: ChangeEvent) -> None:
    await anyio.lowlevel.checkpoint()
    block(BLOCK_SECONDS)


@pytest.mark.parametrize("handle", [at_once, after_an_await])
async def test_all_lanes_together_block_a_turn_for_little_more_than_its_share(
    handle: Handle,
) -> None:
    turns, share, ended = Turns(), LoopShare(), Counter[int]()
    fewest_others = EVENTS

    def lane(number: int) -> DocumentLanes:
        async def counted(event: ChangeEvent) -> None:
            nonlocal fewest_others
            await handle(event)
            turns.calls += 1
            ended[number] += 1
            if ended[number] == EVENTS:
                fewest_others = min([fewest_others, *(ended[n] for n in range(LANES))])

        lanes = DocumentLanes(delivery_to(handler("h", counted), share=share), None, Noting())
        lanes.feed(line_of(changes(0, EVENTS), EVENTS))
        lanes.close()
        return lanes

    lanes = [lane(number) for number in range(LANES)]
    async with anyio.create_task_group() as watching:
        watching.start_soon(turns.watch)
        async with anyio.create_task_group() as running:
            for each in lanes:
                running.start_soon(each.run)
        watching.cancel_scope.cancel()
    assert ended == dict.fromkeys(range(LANES), EVENTS)
    assert turns.most <= 3 * SHARE_SECONDS / BLOCK_SECONDS, "of 512 calls"
    assert fewest_others >= EVENTS / 4, "the lanes go on together"


async def test_a_call_that_waits_for_a_turn_can_be_cancelled() -> None:
    share, cancelled = LoopShare(), []

    async def blocks() -> None:
        await asyncio.sleep(0)
        block(SHARE_SECONDS)

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        except anyio.get_cancelled_exc_class():
            cancelled.append(True)
            raise

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(share.measured(blocks, "a lane"))
        tasks.start_soon(share.measured(waits, "another lane"))
        while not share.closed:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert cancelled == [True]


async def test_a_measured_call_returns_and_raises_as_ever() -> None:
    async def call(value: int) -> int:
        try:
            async with asyncio.timeout(None) as limit:
                limit.reschedule(asyncio.get_running_loop().time() if value else None)
                await (asyncio.sleep(3600) if value else asyncio.sleep(0))
        except TimeoutError:
            return value
        raise ValueError(value)

    measured = LoopShare().measured(call, "a lane")
    assert await measured(1) == 1
    with pytest.raises(ValueError, match="0"):
        await measured(0)


async def test_a_cancelled_worker_keeps_nobody_from_its_turn() -> None:
    share = LoopShare()

    async def blocks() -> None:
        block(SHARE_SECONDS)

    await share.measured(blocks, "a lane")()
    went_on = anyio.Event()

    async def worker() -> None:
        await share.next_slice("a lane")
        went_on.set()

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as cancelled:
            cancelled.cancel()
            await share.next_slice("a lane")
        tasks.start_soon(worker)
        with against_hanging():
            await went_on.wait()


async def quick() -> None:
    """Returns at once."""


async def calm(share: LoopShare) -> None:
    """Makes quick calls until they are not measured any more."""
    for _ in range(1000):
        if not share.measuring:
            return
        await share.measured(quick, "a lane")()
        await anyio.lowlevel.checkpoint()
    raise AssertionError("still measured after 1,000 turns")


async def test_calls_that_never_block_are_measured_no_more_until_one_blocks() -> None:
    share = LoopShare()
    await calm(share)
    share.ended(0.0)
    share.ended(SHARE_SECONDS)
    assert share.measuring
    assert share.closed


async def test_a_call_that_began_while_calls_were_measured_does_not_make_others_be_measured() -> (
    None
):
    share, may_end = LoopShare(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(share.measured(may_end.wait, "a lane"))
        await calm(share)
        may_end.set()
        await anyio.lowlevel.checkpoint()  # it ends, measured, in the turn of the next line
    share.ended(CLOCK())
    assert not share.measuring
    assert not share.closed


async def test_the_first_call_after_the_measured_ones_is_not_taken_for_one_after_a_pause() -> None:
    share = LoopShare()
    await calm(share)
    share.ended(1e6)
    assert not share.measuring
