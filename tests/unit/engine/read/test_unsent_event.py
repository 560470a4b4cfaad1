"""A reply of which one event cannot be sent: a required image is missing, or it is too large."""

import pytest

from tailrace.engine import WatcherState
from tailrace.errors import CommandFailed
from tailrace.model import Position, PositionKind, StartPoint
from tailrace.stream import ChangeStreamOptions, find_unsent
from tests.unit.engine.changes import change, changes, checkpoint, time, token, until
from tests.unit.engine.scripted_driver import ScriptedDriver, refused
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import SCOPE, Destination, Watching

REQUIRED = ChangeStreamOptions(full_document="required")


@pytest.mark.parametrize("sizes", [3, 50])
async def test_the_events_before_it_are_handled_and_the_scope_halts_there(sizes: int) -> None:
    driver, audit = ScriptedDriver(*changes(1, 9), batch_size=sizes), Destination()
    driver.unsent = {6}
    watching = Watching(driver, audit.routed(), options=REQUIRED)
    await watching.to_the_end()
    assert watching.watcher.status.state is WatcherState.HALTED
    assert sorted(audit.handled) == [1, 2, 3, 4, 5]
    assert watching.position.event_token == token(5)
    for part in ('insert of {"_id": 6} in shop.orders', "code 47", "tailrace scopes skip orders"):
        assert part in watching.reason


async def test_slow_handlers_finish_before_the_halt() -> None:
    driver, audit = ScriptedDriver(*changes(1, 9), batch_size=50), Destination()
    driver.unsent, audit.held = {6}, {2, 3}
    watching = Watching(driver, audit.routed(), options=REQUIRED)
    async with watching.run(stop=False):
        await until(lambda: watching.watcher.status.state is WatcherState.DRAINING)
        audit.held = set()
    assert sorted(audit.handled) == [1, 2, 3, 4, 5]
    assert watching.position.event_token == token(5)


async def test_a_failure_that_does_not_come_again_costs_nothing() -> None:
    driver, audit = ScriptedDriver(*changes(1, 9), batch_size=2), Destination()
    driver.faults[4] = [refused(47)]
    async with Watching(driver, audit.routed(), options=REQUIRED).run() as watching:
        await until(lambda: len(audit.handled) == 8)
        await watching.until_state(WatcherState.CAUGHT_UP)
        driver.oplog += changes(9, 13)
        await until(lambda: len(audit.handled) == 12)
    assert sorted(audit.handled) == list(range(1, 13))
    # One event at a time, and then by whole replies again.
    assert [cursor.most for cursor in driver.cursors] == [2, 1, 2]


async def test_the_event_of_the_checkpoint_is_not_needed_again() -> None:
    """Its image has expired since: the server could not make it, but it is handled."""
    driver, audit = ScriptedDriver(*changes(1, 5)), Destination()
    driver.faults[2] = [refused(47)]
    store = ScriptedStore(checkpoint(2, cluster="rs0/5f3a", fingerprint=""))
    async with Watching(driver, audit.routed(), store=store, options=REQUIRED).run():
        await until(lambda: len(audit.handled) == 2)
    assert sorted(audit.handled) == [3, 4]
    assert driver.start_options[:2] == ["resume after 2", "at 2"]


async def test_what_is_set_aside_stays_so_and_nothing_else_is_lost() -> None:
    """Two events of one time, of a transaction: only the one with the token is left out."""
    driver, audit = ScriptedDriver(*changes(1, 6)), Destination()
    twin = change(5) | {"_id": token(5, "2BFF").document, "documentKey": {"_id": "twin"}}
    driver.oplog.append(twin)
    aside = Position(PositionKind.SET_ASIDE, None, token(5), time(5))
    store = ScriptedStore(checkpoint(4, cluster="rs0/5f3a", position=aside, fingerprint="other"))
    async with Watching(driver, audit.routed(), store=store, options=REQUIRED).run() as watching:
        await until(lambda: bool(audit.handled))
    assert audit.handled == [5]
    assert watching.position.event_token == token(5, "2BFF")


@pytest.mark.parametrize("bad", [1, 2, 3, 7, 64, 68])
async def test_the_first_one_is_named_whatever_the_pipeline_leaves_out(bad: int) -> None:
    driver = ScriptedDriver(*changes(1, 70))
    driver.unsent, driver.filtered = {bad, bad + 1}, set(range(1, bad))
    found = await find_unsent(driver, SCOPE, REQUIRED, StartPoint(resume_after=token(0)))
    assert found is not None
    assert found.event.document_key == {"_id": bad}
    assert found.error.code == 47


async def test_none_is_named_if_the_next_one_can_be_sent_or_there_is_none() -> None:
    driver, start = ScriptedDriver(*changes(1, 4)), StartPoint(resume_after=token(0))
    driver.unsent = {2}
    assert await find_unsent(driver, SCOPE, REQUIRED, start) is None
    assert await find_unsent(driver, SCOPE, REQUIRED, StartPoint(resume_after=token(3))) is None


async def test_a_login_that_ends_meanwhile_is_no_event() -> None:
    driver = ScriptedDriver(*changes(1, 3))
    driver.refusals = [refused(13)]
    with pytest.raises(CommandFailed):
        await find_unsent(driver, SCOPE, REQUIRED, StartPoint(resume_after=token(0)))
