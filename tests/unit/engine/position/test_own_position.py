"""A destination that stores its position with its data gets each change exactly once."""

from collections import Counter
from typing import Any

import pytest

from tailrace.engine import Routed, RunIdentity, WatcherState
from tailrace.event import ChangeEvent
from tailrace.model import SinkPosition
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.stores.memory import MemoryDeadLetters
from tests.handlers import handler
from tests.unit.engine.changes import checkpoint, invalidate, number, time, token, until
from tests.unit.engine.destinations import Table, event, oplog
from tests.unit.engine.scripted_driver import ScriptedDriver, refused
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import Destination, Watching


async def test_on_a_quiet_scope_the_checkpoint_goes_on() -> None:
    """The oplog may have lost the sink's own token by then."""
    driver, store, sink = ScriptedDriver(*oplog(3)), ScriptedStore(), Table("sink")
    wants = lambda event: number(event) <= 3  # noqa: E731
    async with Watching(driver, sink.routed(2, wants), store=store).run() as first:
        await until(lambda: sink.rows == [1, 2, 3])
        driver.oplog += [event(n) for n in range(4, 40)]
        await until(lambda: first.watcher.status.state is WatcherState.CAUGHT_UP)
    assert first.position.stored == token(3).digest
    async with Watching(driver, sink.routed(2, wants), store=store).run() as second:
        await second.until_state(WatcherState.CAUGHT_UP)
    assert driver.start_options[-1] == "resume after 39"


async def test_a_destination_that_lost_its_position_is_reported() -> None:
    """It continues at the checkpoint; whether it lost earlier data cannot be known."""
    driver, store, sink = ScriptedDriver(*oplog(3)), ScriptedStore(), Table("sink")
    async with Watching(driver, sink.routed(2), store=store).run() as first:
        await until(lambda: sink.rows == [1, 2, 3])
    assert "position.missing" not in [log["event"] for log in first.logs]
    sink.rows, sink.token = [], None
    driver.oplog.append(event(4))
    async with Watching(driver, sink.routed(2), store=store).run() as second:
        await until(lambda: sink.rows == [4])
    (reported,) = [log for log in second.logs if log["event"] == "position.missing"]
    assert (reported["scope"], reported["handler"]) == ("orders", "sink")


@pytest.mark.parametrize("said", ["8265A0", {}, (token(1).document, time(1)), 7])
async def test_an_invalid_position_halts_the_scope_and_names_handler_and_remedy(said: Any) -> None:
    """Asking again would not help."""

    async def position(owner: RunIdentity) -> SinkPosition | None:
        return SinkPosition.of(said)

    routed = Routed(handler("sink", on_events=Table("sink").store, position=position))
    watching = Watching(ScriptedDriver(*oplog(3)), routed)
    await watching.to_the_end()
    assert watching.watcher.status.state is WatcherState.HALTED
    for part in ("'orders'", "'sink'", "batch.position"):
        assert part in watching.reason
    assert watching.driver.starts == []


async def test_a_destination_whose_history_is_lost_is_told_of_the_gap() -> None:
    driver, sink = ScriptedDriver(*oplog(3)), Table("sink")
    sink.rows, sink.token = [1], token(1)
    driver.refused_starts = {"start after 1": refused(286), "at 1": refused(286)}
    async with Watching(driver, sink.routed(2), skip_lost_history=True).run() as watching:
        await watching.until_state(WatcherState.CAUGHT_UP)
        await until(lambda: watching.saved is not None)
    # A restart before the next change does not return to the lost position.
    again = Watching(driver, sink.routed(2), store=watching.store, skip_lost_history=True)
    async with again.run():
        await again.until_state(WatcherState.CAUGHT_UP)
        driver.oplog += [event(4)]
        await until(lambda: sink.rows == [1, 4])
    assert driver.start_options == ["start after 1", "at 1", "now", "resume after 3"]
    (gap,) = sink.gaps
    assert (gap.token, gap.since) == (token(1), time(1))
    assert await watching.store.gaps("orders") == [gap]


async def test_a_restored_one_whose_history_is_lost_goes_on_at_the_checkpoint_with_a_gap() -> None:
    driver, store = ScriptedDriver(*oplog(9)), ScriptedStore()
    sink, audit = Table("sink"), Destination()
    async with Watching(driver, sink.routed(2), audit.routed(), store=store).run():
        await until(lambda: len(sink.rows) == 9 and len(audit.handled) == 9)
    sink.rows, sink.token = [1, 2, 3], token(3)
    driver.refused_starts = {"start after 3": refused(286), "at 3": refused(286)}
    second = Watching(driver, sink.routed(2), audit.routed(), store=store, skip_lost_history=True)
    async with second.run():
        await second.until_state(WatcherState.CAUGHT_UP)
        driver.oplog += [event(10)]
        await until(lambda: 10 in sink.rows)
        await until(lambda: 10 in audit.handled)
    # The other one goes on meanwhile where it was.
    assert sorted(driver.start_options[1:]) == [
        *("at 3", "resume after 9", "resume after 9", "start after 3")
    ]
    assert (sink.rows, audit.handled) == ([1, 2, 3, 10], list(range(1, 11)))
    assert [gap.since for gap in sink.gaps] == [time(3)]


async def test_a_lost_history_of_one_handler_leads_no_other_one_back() -> None:
    """They stand together, so they begin with one stream; then each goes on by itself."""
    driver, sink, audit = ScriptedDriver(*oplog(9)), Table("sink"), Destination()
    at_six = checkpoint(6, stored=token(6).digest, fingerprint="").last
    at_eight = checkpoint(8, fingerprint="").last
    store = ScriptedStore(checkpoint(1).with_subscriptions({"sink": at_six, audit.name: at_eight}))
    sink.rows, sink.token = [1, 2, 3], token(3)
    driver.refused_starts = {"start after 3": refused(286), "at 3": refused(286)}
    routed = sink.routed(2), audit.routed()
    async with Watching(driver, *routed, store=store, skip_lost_history=True).run():
        await until(lambda: sink.rows[-1:] == [9] and 9 in audit.handled)
    assert "resume after 8" in driver.start_options
    apart = [each for each in driver.start_options if each != "resume after 8"]
    assert apart[:4] == ["start after 3", "start after 3", "at 3", "resume after 6"]
    assert (sink.rows, audit.handled) == ([1, 2, 3, 7, 8, 9], [9])
    assert [(gap.since, gap.handlers) for gap in sink.gaps] == [(time(3), ("sink",))]


async def test_a_lost_history_of_one_handler_halts_no_other_one() -> None:
    driver, sink, audit = ScriptedDriver(*oplog(9)), Table("sink"), Destination()
    store = ScriptedStore(
        checkpoint(1).with_subscriptions(
            {
                "sink": checkpoint(6, stored=token(6).digest, fingerprint="").last,
                audit.name: checkpoint(8, fingerprint="").last,
            }
        )
    )
    sink.rows, sink.token = [1, 2, 3], token(3)
    driver.refused_starts = {"start after 3": refused(286)}
    async with Watching(driver, sink.routed(2), audit.routed(), store=store).run() as watching:
        await until(lambda: 9 in audit.handled)
        await until(lambda: watching.watcher.apart["sink"].state is WatcherState.HALTED)
        await watching.until_state(WatcherState.CAUGHT_UP)
    assert (sink.rows, audit.handled) == ([1, 2, 3], [9])
    saved = store.records["orders"].subscriptions
    assert "286" in saved["sink"].halted
    assert saved[audit.name].halted == ""


AT_MOST_TWICE = FailurePolicy(attempts=2, backoff=Backoff(0, 0))


async def test_only_the_poison_of_a_sequence_is_set_aside_and_the_rest_is_stored_once() -> None:
    sink, letters = Table("sink"), MemoryDeadLetters()
    sink.poison, sink.lost = {3}, 1
    routed = sink.routed(5, failure=AT_MOST_TWICE)
    driver = ScriptedDriver(*oplog(9), batch_size=5)
    async with Watching(driver, routed, letters=letters).run():
        await until(lambda: sink.rows[-1:] == [9])
    assert sink.rows == [1, 2, 4, 5, 6, 7, 8, 9]
    assert [
        ChangeEvent.from_raw(letter.raw).document_key for letter in await letters.letters()
    ] == [{"_id": 3}]


async def test_a_commit_whose_answer_was_lost_to_the_last_attempt_leaves_no_letter() -> None:
    sink, letters = Table("sink"), MemoryDeadLetters()
    sink.failing, sink.lost = Counter([1]), 1
    routed = sink.routed(3, failure=AT_MOST_TWICE)
    async with Watching(ScriptedDriver(*oplog(6)), routed, letters=letters).run():
        await until(lambda: sink.rows[-1:] == [6])
    assert sink.rows == [1, 2, 3, 4, 5, 6]
    assert await letters.letters() == []


async def test_a_position_after_an_invalidate_uses_start_after_without_an_event() -> None:
    """The first reply's position is that same token, which `resumeAfter` would refuse."""
    driver, store = ScriptedDriver(event(1), invalidate(2)), ScriptedStore()
    sink = Table("sink")
    sink.token = token(2)
    async with Watching(driver, sink.routed(2), store=store).run():
        await until(lambda: store.saved)
    sink.token = None  # as if restored from a backup: now only the checkpoint knows
    driver.oplog.append(event(3))
    async with Watching(driver, sink.routed(2), store=store).run():
        await until(lambda: sink.rows == [3])
    assert driver.start_options == ["start after 2", "start after 2"]
