"""Resumes that make no progress are spaced; progress, and a stop, end the waiting."""

import asyncio

import anyio
import pytest

from tailrace.errors import DriverError, StreamInterrupted
from tailrace.stream import ChangeStream, Interrupt, StreamActivity
from tests.unit.stream.fake_driver import LABEL, NETWORK, SCOPE, FakeDriver, failure, reply


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Sleeping takes no time and is noted down, without the jitter."""
    noted: list[float] = []

    async def sleep(seconds: float) -> None:
        noted.append(round(seconds, 6))
        await asyncio.sleep(0)

    monkeypatch.setattr(anyio, "sleep", sleep)
    monkeypatch.setattr("tailrace.model.failure_policy.random.uniform", lambda low, high: high)
    return noted


async def test_the_first_resume_is_immediate_and_the_next_ones_wait_ever_longer(
    sleeps: list[float],
) -> None:
    get_mores = [*[failure(11602, LABEL)] * 11, reply()]
    driver = FakeDriver([reply(post_batch="p")] * 12, get_mores)
    async with ChangeStream(driver, SCOPE) as stream:
        for _ in range(2):
            await stream.next_batch()
    assert sleeps == [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5]


@pytest.mark.parametrize("answer", [reply(post_batch="q"), reply("a")], ids=["empty", "an event"])
async def test_a_get_more_that_succeeds_is_progress(sleeps: list[float], answer: object) -> None:
    get_mores = [NETWORK, NETWORK, answer, NETWORK, NETWORK, answer]
    driver = FakeDriver([reply(post_batch="p")] * 5, get_mores)  # type: ignore[arg-type]
    async with ChangeStream(driver, SCOPE) as stream:
        for _ in range(3):
            await stream.next_batch()
    assert sleeps == [0, 0.1, 0, 0.1]


async def test_events_that_an_aggregate_brings_unasked_are_progress(sleeps: list[float]) -> None:
    driver = FakeDriver([reply(), reply("a"), reply("b"), reply()], [*[NETWORK] * 3, reply()])
    async with ChangeStream(driver, SCOPE) as stream:
        for _ in range(4):
            await stream.next_batch()
    assert sleeps == [0, 0, 0]


async def test_a_stop_ends_the_waiting_of_a_resume() -> None:
    interrupt = Interrupt()
    driver = FakeDriver([reply()] * 99, [NETWORK] * 99)

    class StopsAfterTheSecond(StreamActivity):
        def resumed(self, error: DriverError) -> None:
            super().resumed(error)
            if self.resumes.total() == 2:
                asyncio.get_running_loop().call_soon(interrupt.set)

    activity = StopsAfterTheSecond()
    stream = ChangeStream(driver, SCOPE, activity=activity, interrupt=interrupt)
    async with stream:
        await stream.next_batch()
        with pytest.raises(StreamInterrupted, match="orders"):
            await stream.next_batch()
        with pytest.raises(StreamInterrupted):
            await stream.next_batch()
    assert len(driver.requests) == 3
    assert driver.kills == 3


async def test_a_stop_before_a_resume_lets_nothing_be_sent() -> None:
    interrupt = Interrupt()
    interrupt.set()
    driver = FakeDriver([reply(), reply()], [NETWORK])
    async with ChangeStream(driver, SCOPE, interrupt=interrupt) as stream:
        await stream.next_batch()
        with pytest.raises(StreamInterrupted):
            await stream.next_batch()
    assert len(driver.requests) == 1


async def test_a_stop_does_not_touch_a_read() -> None:
    interrupt = Interrupt()
    interrupt.set()
    driver = FakeDriver([reply()], [reply("a"), reply("b")])
    async with ChangeStream(driver, SCOPE, interrupt=interrupt) as stream:
        assert [len(await stream.next_batch()) for _ in range(3)] == [0, 1, 1]
