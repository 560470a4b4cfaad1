"""While documents are looked up, the next reply is read: when, by whom, and what becomes of it."""

from functools import partial

import anyio
import pytest

from tailrace.errors import CommandFailed
from tailrace.stream import LookupStream
from tests.unit.replicas.simulated_time import simulated, the_loop
from tests.unit.stream.fake_driver import FakeDriver, failure, reply, tokens
from tests.unit.stream.look_ups import LARGE, position, read, update


async def test_the_next_reply_is_read_while_documents_are_looked_up() -> None:
    replies = [reply(update("a", 1, text="x" * LARGE)), reply(update("b", 1)), reply("c")]
    driver = FakeDriver([reply()], replies)
    driver.found = anyio.Event()

    async def see(stream: LookupStream) -> None:
        async with anyio.create_task_group() as tasks:
            seen: list[str] = []

            async def reading() -> None:
                for _ in range(3):
                    seen.extend(tokens((await stream.next_batch()).events()))

            tasks.start_soon(reading)
            while driver.reads < 2:
                await anyio.lowlevel.checkpoint()
            assert (len(driver.look_ups), seen) == (1, [])
            assert driver.found is not None
            driver.found.set()
        assert seen == ["a", "b", "c"]

    await read(driver, see)


@pytest.mark.parametrize(
    ("size", "find_seconds", "allowed", "reads"),
    [
        (1, 0.001, True, 2),  # another command would delay the documents
        (1, 1.0, True, 3),  # by nothing that counts, as the last look-up was slow
        (LARGE, 0.001, True, 3),
        (LARGE, 1.0, False, 2),
        (5 << 20, 1.0, True, 2),  # enough is in memory
    ],
)
def test_when_the_next_reply_is_read_while_documents_are_looked_up(
    size: int, find_seconds: float, allowed: bool, reads: int
) -> None:
    replies = [reply(update("a", 1)), reply(update("b", 1, text="x" * size)), reply("c")]
    driver = FakeDriver([reply()], replies)
    driver.find_seconds = find_seconds

    async def see(stream: LookupStream) -> None:
        await stream.next_batch()
        assert driver.reads == 1
        await stream.next_batch()
        assert driver.reads == reads
        assert tokens((await stream.next_batch()).events()) == ["c"]

    simulated(partial(read, driver, see, may_prefetch=lambda: allowed))


@pytest.mark.parametrize("wait", [True, False])
async def test_a_reply_that_was_not_read_ahead_is_read_as_it_is_asked_for(wait: bool) -> None:
    driver = FakeDriver([reply()], [reply(update("a", 1)), reply("b")])

    async def see(stream: LookupStream) -> None:
        await stream.next_batch()
        await stream.next_batch(wait=wait)

    await read(driver, see)
    assert [each is None for each in driver.waits] == [True, wait]


def test_an_error_does_not_wait_for_the_reply_that_is_read_ahead() -> None:
    driver = FakeDriver([reply()], [reply(update("a", 1, text="x" * LARGE)), reply()])
    driver.read_seconds, driver.find_seconds = 3.0, 1.0
    driver.refusals = [failure(13)]

    async def fail() -> None:
        with pytest.raises(CommandFailed):
            await read(driver, LookupStream.next_batch)
        assert the_loop().time() == driver.read_seconds + driver.find_seconds

    simulated(fail)
    assert driver.reads == 2


async def test_an_error_of_the_next_read_comes_behind_the_documents() -> None:
    given = update("a", 1, text="x" * LARGE)
    driver = FakeDriver([reply()], [reply(given, post_batch="p"), failure(13)])
    at = []

    async def see(stream: LookupStream) -> None:
        await stream.next_batch()
        at.append(position(stream))
        await stream.next_batch()

    with pytest.raises(CommandFailed):
        await read(driver, see)
    assert at == ["p"]
    assert driver.reads == 2
