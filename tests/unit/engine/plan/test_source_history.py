"""Whether a source still has a change, told from a stream that starts at its time."""

import pytest

from tailrace.engine.plan.source_history import has_change
from tailrace.errors import ConnectionFailed
from tailrace.stream import ChangeStreamOptions
from tests.unit.engine.changes import change, time
from tests.unit.engine.scripted_driver import ScriptedDriver, disconnected, refused
from tests.unit.engine.watching import SCOPE

pytestmark = pytest.mark.anyio


async def has(driver: ScriptedDriver, at: int) -> bool:
    return await has_change(driver, SCOPE, ChangeStreamOptions(), time(at), lambda: None)


async def test_a_source_has_the_change_that_it_returns_first() -> None:
    assert await has(ScriptedDriver(change(1), change(2), change(3)), 2)


async def test_a_source_that_returns_a_later_change_was_restored() -> None:
    assert not await has(ScriptedDriver(change(1), change(3)), 2)


async def test_a_source_that_searched_up_to_a_later_time_was_restored() -> None:
    nothing_of_the_scope = 0
    driver = ScriptedDriver(change(1), change(3), batch_size=nothing_of_the_scope)
    assert not await has(driver, 2)


async def test_a_member_that_has_not_reached_the_time_is_waited_for() -> None:
    driver = ScriptedDriver(change(1))
    waited = []

    def behind() -> None:
        waited.append(driver.now)
        driver.oplog = [change(1), change(2)]

    assert await has_change(driver, SCOPE, ChangeStreamOptions(), time(2), behind)
    assert waited == [1]


async def test_a_source_that_cannot_tell_is_trusted() -> None:
    driver = ScriptedDriver(change(3))
    driver.refusals = [refused(286)]
    assert await has(driver, 2)


async def test_a_source_that_does_not_answer_is_asked_again() -> None:
    driver = ScriptedDriver(change(3))
    driver.refusals = [disconnected()]
    with pytest.raises(ConnectionFailed):
        await has(driver, 2)
