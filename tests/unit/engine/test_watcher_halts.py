"""Halts that need an operator, and checkpoints of another epoch, cluster or pipeline."""

from dataclasses import replace

import pytest

from tailrace.engine import WatcherState
from tailrace.errors import CheckpointCorrupt
from tailrace.model import PositionKind
from tailrace.model.cluster import ClusterIdentity
from tailrace.stream import ChangeStreamOptions, fingerprint
from tests.unit.engine.changes import (
    change,
    changes,
    checkpoint,
    invalidate,
    settle,
    token,
    until,
)
from tests.unit.engine.scripted_driver import ScriptedDriver, refused
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import SCOPE, Destination, Watching

FINGERPRINT = fingerprint(SCOPE, ChangeStreamOptions())
STORED = checkpoint(2, cluster="rs0/5f3a", fingerprint=FINGERPRINT, epoch=4, sequence=17)


async def halted(watching: Watching) -> str:
    """Runs the watcher until it ends by itself; returns the reason that it gives."""
    await watching.to_the_end()
    assert watching.watcher.status.state is WatcherState.HALTED
    assert watching.last_error == watching.reason
    assert [log["event"] for log in watching.logs].count("scope.halted") == 1
    return watching.reason


@pytest.mark.parametrize("code", [20, 286, 280, 260])
async def test_a_position_is_refused_for_good_if_the_server_takes_the_stream_without_it(
    code: int,
) -> None:
    driver, store = ScriptedDriver(*changes(1, 4)), ScriptedStore(STORED)
    driver.refused_starts = {"resume after 2": refused(code, "the server's words")}
    reason = await halted(Watching(driver, Destination().routed(), store=store))
    assert f"the server's words (code {code} Scripted)" in reason
    assert driver.start_options == ["resume after 2"]
    assert driver.probes == 2
    assert store.records["orders"].position == STORED.position
    assert driver.sessions == 0


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("code", [13, 18, 40573, 286, 280, 260])
async def test_what_the_server_refuses_for_a_moment_is_tried_again(code: int, times: int) -> None:
    """Also with on_history_lost: skip: nothing is skipped because of a code alone."""
    driver, store, audit = ScriptedDriver(*changes(1, 5)), ScriptedStore(STORED), Destination()
    driver.refusals = [refused(code)] * times
    watching = Watching(driver, audit.routed(), store=store, skip_lost_history=True)
    async with watching.run():
        await until(lambda: len(audit.handled) == 2)
    assert sorted(audit.handled) == [3, 4]
    assert "halted" not in watching.states
    assert "backing_off" in watching.states
    assert set(driver.start_options) == {"resume after 2"}
    assert await store.gaps("orders") == []


async def test_a_corrupt_checkpoint_is_not_a_fresh_start() -> None:
    driver, store = ScriptedDriver(change(1)), ScriptedStore()
    store.failing_loads = [CheckpointCorrupt("positions.db, scope 'orders': unreadable")]
    reason = await halted(Watching(driver, store=store))
    assert reason == "positions.db, scope 'orders': unreadable"
    assert driver.starts == []


async def test_an_epoch_that_is_overtaken_halts_at_the_next_run() -> None:
    driver, store, audit = ScriptedDriver(*changes(1, 5)), ScriptedStore(STORED), Destination()
    audit.failures[3] = 1
    audit.held = {3, 4}
    async with Watching(driver, audit.routed(), store=store).run(stop=False) as watching:
        await until(lambda: 4 in audit.begun)
        store.records["orders"] = replace(STORED, epoch=6, sequence=1)
        audit.held = set()
    assert watching.states[-1] == "halted"
    assert "epoch 6, sequence 1, newer than this process's 5, 1" in watching.reason


@pytest.mark.parametrize(
    "here", [ClusterIdentity("rs0", "other"), ClusterIdentity("rs1"), ClusterIdentity("mongos")]
)
async def test_a_checkpoint_of_another_cluster_halts(here: ClusterIdentity) -> None:
    """A well-formed token of another cluster may be accepted silently."""
    driver = ScriptedDriver(*changes(1, 5))
    watching = Watching(driver, store=ScriptedStore(STORED), cluster=here)
    reason = await halted(watching)
    assert "rs0/5f3a" in reason
    assert str(here) in reason
    assert "tailrace checkpoints reset orders" in reason
    assert driver.starts == []


NEW = ChangeStreamOptions(pipeline=({"$match": {"operationType": "insert"}},))


async def test_a_changed_fingerprint_goes_through_the_cluster_time() -> None:
    """The new pipeline cannot use the old token.

    Nothing is lost, and what is before the checkpoint is left out.
    """
    driver, store = ScriptedDriver(*changes(1, 5)), ScriptedStore(STORED)
    audit = Destination()
    async with Watching(driver, audit.routed(), store=store, options=NEW).run() as watching:
        await until(lambda: 4 in audit.handled)
    assert driver.start_options == ["at 2"]
    assert sorted(audit.handled) == [3, 4]
    assert "checkpoint.pipeline_changed" in [log["event"] for log in watching.logs]
    assert store.records["orders"].fingerprint == fingerprint(SCOPE, NEW)
    assert watching.position.event_token == token(4)


async def test_an_invalidate_is_handled_and_saved_and_the_stream_continues_after_it() -> None:
    driver = ScriptedDriver(*changes(1, 3), invalidate(3), *changes(4, 6))
    audit, lake, store = Destination("audit"), Destination("lake"), ScriptedStore()
    lake.held = {1}
    watching = Watching(driver, audit.routed(), lake.routed_by_batch(), store=store)
    async with watching.run():
        await until(lambda: 3 in audit.handled)
        await settle()
        # The whole reply drains first, in every handler.
        assert len(driver.starts) == 1
        lake.held = set()
        await until(lambda: {4, 5} <= set(audit.handled) & set(lake.handled))
    assert sorted(audit.begun) == sorted(lake.begun) == [1, 2, 3, 4, 5]
    assert driver.start_options == ["at 1", "start after 3"]
    kinds = [checkpoint.position.kind for checkpoint in store.saved]
    assert kinds[:2] == [PositionKind.IDLE, PositionKind.INVALIDATE]
    assert store.saved[1].position.high_water == token(3)
    assert kinds[-1] is not PositionKind.INVALIDATE
    assert watching.counted("invalidates_total") == 1
    states = ["catching_up", "draining", "starting", "catching_up", "streaming"]
    assert watching.states[:5] == states


async def test_the_reason_of_a_halt_is_in_the_store_until_the_scope_runs_again() -> None:
    driver, store = ScriptedDriver(*changes(1, 6)), ScriptedStore(STORED)
    driver.unsent = {4}
    reason = await halted(Watching(driver, Destination().routed(), store=store))
    noted = store.records["orders"]
    assert noted.halted == reason
    assert noted.position.event_token == token(3)
    driver.unsent = set()
    audit = Destination()
    async with Watching(driver, audit.routed(), store=store).run():
        await until(lambda: len(audit.handled) == 2)
    assert not store.records["orders"].halted


async def test_a_halt_before_the_first_position_is_noted_and_is_no_position() -> None:
    driver, store = ScriptedDriver(*changes(1, 6)), ScriptedStore()
    driver.refused_starts = {"at 1": refused(20), "now": refused(20)}
    reason = await halted(Watching(driver, Destination().routed(), store=store))
    assert store.records["orders"].halted == reason
    assert store.records["orders"].is_reset
