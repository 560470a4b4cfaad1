"""The scripted driver keeps the port's promises, and mongod's where the engine relies on them."""

from __future__ import annotations

import anyio
import pytest

from tailrace.errors import CommandFailed, DriverError
from tailrace.model import ResumeToken, Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions, Driver
from tests.unit.engine.changes import change, invalidate, number, time, token
from tests.unit.engine.scripted_driver import (
    AFTER,
    BEFORE,
    ScriptedDriver,
    disconnected,
    refused,
    resumable,
)

SCOPE = Scope("orders", "shop", "orders")


async def read(
    driver: Driver, start: StartPoint | None = None, replies: int = 4
) -> tuple[list[int], ChangeStream]:
    """The events of the first replies of a stream."""
    events = []
    async with ChangeStream(driver, SCOPE, ChangeStreamOptions(), start) as stream:
        for _ in range(replies):
            batch = await stream.next_batch()
            events += [number(event) for event in batch.events()]
            if stream.invalidated:
                break
    return events, stream


@pytest.mark.parametrize(
    ("start", "events"),
    [
        (StartPoint(), []),
        (StartPoint(at_operation_time=time(3)), [3, 4, 5]),
        (StartPoint(resume_after=token(3)), [4, 5]),
        (StartPoint(resume_after=token(3, AFTER)), [4, 5]),
        (StartPoint(start_after=token(3)), [4, 5]),
        (StartPoint(resume_after=token(5)), []),
    ],
)
async def test_a_stream_starts_where_it_is_asked_to(start: StartPoint, events: list[int]) -> None:
    driver = ScriptedDriver(*map(change, range(1, 6)))
    assert (await read(driver, start))[0] == events


async def test_replies_are_bounded_and_then_empty_with_a_later_token() -> None:
    driver = ScriptedDriver(*map(change, range(1, 6)), batch_size=2)
    start = StartPoint(at_operation_time=time(1))
    async with ChangeStream(driver, SCOPE, start=start) as stream:
        sizes = [len(await stream.next_batch()) for _ in range(6)]
    assert sizes == [0, 2, 2, 1, 0, 0]
    assert stream.resume_token == token(5, AFTER)


@pytest.mark.parametrize(
    ("start", "position"),
    [
        (StartPoint(), token(5, AFTER)),
        (StartPoint(at_operation_time=time(3)), token(3, BEFORE)),
        (StartPoint(resume_after=token(3)), token(3)),
        (StartPoint(start_after=token(3)), token(3)),
    ],
)
async def test_an_aggregate_brings_no_events_and_the_position_where_it_starts(
    start: StartPoint, position: ResumeToken
) -> None:
    driver = ScriptedDriver(*map(change, range(1, 6)))
    async with ChangeStream(driver, SCOPE, start=start) as stream:
        batch = await stream.next_batch()
    assert (len(batch), batch.token, batch.operation_time) == (0, position, time(5))


async def test_what_is_appended_comes_to_the_open_cursor() -> None:
    driver = ScriptedDriver(change(1))
    async with ChangeStream(driver, SCOPE) as stream:
        assert len(await stream.next_batch()) == 0
        driver.oplog.append(change(2))
        assert len(await stream.next_batch()) == 1


async def test_an_invalidate_ends_its_reply_and_its_cursor() -> None:
    driver = ScriptedDriver(change(1), invalidate(2), change(3))
    events, stream = await read(driver, StartPoint(at_operation_time=time(1)))
    assert events == [1, 2]
    assert stream.invalidated
    assert (await read(driver, StartPoint(start_after=token(2))))[0] == [3]
    with pytest.raises(CommandFailed) as failed:
        await read(driver, StartPoint(resume_after=token(2)))
    assert failed.value.code == 260


async def test_errors_come_where_they_were_put() -> None:
    driver = ScriptedDriver(change(1), change(2), batch_size=1)
    driver.refusals.append(refused(13))
    start = StartPoint(at_operation_time=time(1))
    with pytest.raises(CommandFailed):
        await read(driver, start)
    driver.faults[2] = [resumable(), disconnected()]
    assert (await read(driver, start))[0] == [1, 2]
    assert driver.start_options == ["at 1", "at 1", *["resume after 2"] * 2]
    driver.faults[1] = [refused(286)]
    with pytest.raises(DriverError):
        await read(driver, start)


async def test_everything_is_given_back() -> None:
    driver = ScriptedDriver(change(1))
    await read(driver)
    assert driver.sessions == 0
    assert [cursor.killed for cursor in driver.cursors] == [True]
    with pytest.raises(CommandFailed, match="no such cursor"):
        await driver.cursors[0].next_batch()


async def test_a_cancelled_read_is_noted_and_the_cursor_must_not_be_read_again() -> None:
    driver = ScriptedDriver(change(1))
    async with ChangeStream(driver, SCOPE) as stream:
        await stream.next_batch()
        with anyio.move_on_after(0):
            await stream.next_batch()
    assert driver.cancelled_reads == 1
    with pytest.raises(CommandFailed):
        await driver.cursors[0].next_batch()
