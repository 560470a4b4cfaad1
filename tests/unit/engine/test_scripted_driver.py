"""The scripted driver fulfils the port, and acts like mongod where the engine relies on it."""

import pytest

from tailrace.errors import CommandFailed
from tailrace.model import ResumeToken, Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions, Driver
from tests.unit.engine.changes import change, invalidate, number, time, token
from tests.unit.engine.scripted_driver import (
    AFTER,
    BEFORE,
    ScriptedDriver,
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


async def test_an_invalidate_ends_its_reply_and_its_cursor() -> None:
    driver = ScriptedDriver(change(1), invalidate(2), change(3))
    events, stream = await read(driver, StartPoint(at_operation_time=time(1)))
    assert events == [1, 2]
    assert stream.invalidated
    assert (await read(driver, StartPoint(start_after=token(2))))[0] == [3]
    with pytest.raises(CommandFailed) as failed:
        await read(driver, StartPoint(resume_after=token(2)))
    assert failed.value.code == 260
