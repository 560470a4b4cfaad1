"""Handlers that commit, without a position of their own: the checkpoint is their position."""

from collections import Counter
from typing import Any

import anyio
import pytest

from tailrace.engine import WatcherState
from tailrace.errors import Unavailable
from tailrace.model.failure_policy import FailurePolicy
from tests.unit.engine.changes import ddl, set_aside, token, until
from tests.unit.engine.destinations import Collecting, event, oplog
from tests.unit.engine.test_desired_states import desired
from tests.unit.engine.test_final_position import Scope


async def test_a_stop_commits_what_was_accepted_and_nothing_comes_again() -> None:
    lake, scope = Collecting("lake"), Scope(*oplog(20), batch_size=7)
    async with scope.process(lake.routed_to_commit(3)).run():
        await until(lambda: len(lake.accepted) == 20)
        assert lake.commits == []
        assert scope.store.records["orders"].position.event_token is None
    assert lake.handled == list(range(1, 21))
    assert scope.checkpoint.position.event_token == token(20)
    async with scope.process(lake.routed_to_commit(3)).run():
        await scope.caught_up()
    assert lake.handled == list(range(1, 21))


@pytest.mark.parametrize("fails", ["write", "commit"])
async def test_a_failure_ends_the_run_and_the_changes_come_again_from_the_checkpoint(
    fails: str,
) -> None:
    lake, scope = Collecting("lake"), Scope(*oplog(12), batch_size=4)
    if fails == "write":
        lake.failing = Counter([7])
    else:
        lake.failing_commits = 1
    process = scope.process(lake.routed_to_commit(4, events=4), checkpoint_seconds=0)
    async with process.run():
        await until(lambda: set(lake.handled) == set(range(1, 13)))
    assert process.counted("watcher_restarts_total", reason="handler") == 1
    assert list(dict.fromkeys(lake.handled)) == list(range(1, 13))
    assert await scope.letters.letters() == []


async def test_no_position_is_saved_that_is_not_committed() -> None:
    lake, scope = Collecting("lake"), Scope(*oplog(12), batch_size=4)
    process = scope.process(lake.routed_to_commit(2, events=4), checkpoint_seconds=0)
    async with process.run():
        await until(lambda: len(lake.handled) + len(lake.accepted) == 12)
        for saved in scope.store.saved:
            reached = [n for n in range(1, 13) if saved.position.event_token == token(n)]
            assert set(range(1, max(reached, default=0) + 1)) <= set(lake.handled)


async def test_ddl_comes_after_a_commit_of_all_before_it() -> None:
    drop = ddl(4) | {"n": 4}
    changes = [*oplog(3), drop, *(event(n) for n in range(5, 8))]
    lake, scope = Collecting("lake"), Scope(*changes)
    async with scope.process(lake.routed_to_commit(100)).run():
        await until(lambda: lake.accepted == [5, 6, 7])
        assert (lake.commits, lake.ddl) == ([[1, 2, 3]], [4])
    assert lake.commits == [[1, 2, 3], [5, 6, 7]]


async def test_a_stop_inside_a_reply_repeats_nothing_that_is_committed() -> None:
    lake, scope = Collecting("lake"), Scope(*oplog(20))
    async with scope.process(lake.routed_to_commit(5)).run():
        lake.pauses = 10
        await until(lambda: len(lake.accepted) >= 5)
        scope.last.stop.set()
    first = list(lake.handled)
    assert first == list(range(1, len(first) + 1))
    assert len(first) < 20
    async with scope.process(lake.routed_to_commit(5)).run():
        await until(lambda: len(lake.accepted) == 20 - len(first))
    assert lake.handled == list(range(1, 21))


async def test_refused_events_become_dead_letters_and_later_ones_of_their_document_wait() -> None:
    lake, scope = Collecting("lake"), Scope(*(event(n, n % 3) for n in range(1, 10)))
    lake.refused = {4}
    async with scope.process(lake.routed_to_commit(100)).run():
        await until(lambda: len(lake.accepted) == 7)
    assert await set_aside(scope.letters) == [4, 7]
    assert lake.handled == [1, 2, 3, 5, 6, 8, 9]
    scope.driver.oplog += [event(10, 1), event(11, 2)]
    async with scope.process(lake.routed_to_commit(100)).run():
        await until(lambda: lake.accepted == [11])
    assert len(await scope.letters.letters()) == 3


@pytest.mark.parametrize(
    ("policy", "fails", "state", "word"),
    [
        (FailurePolicy(halt=True), RuntimeError("a bug"), WatcherState.HALTED, "a bug"),
        (FailurePolicy(), Unavailable("the bucket is gone"), WatcherState.WAITING, "bucket"),
    ],
    ids=["on_failure: halt", "an outage"],
)
async def test_the_state_says_why_nothing_is_committed(
    policy: FailurePolicy, fails: Exception, state: WatcherState, word: str
) -> None:
    lake, scope = Collecting("lake"), Scope(*oplog(3))

    async def commit(identity: Any) -> None:
        raise fails

    lake.commit = commit  # type: ignore[method-assign]
    process = scope.process(lake.routed_to_commit(10, events=3, failure=policy))
    async with process.run():
        await process.until_state(state)
        assert word in process.reason
    assert lake.handled == []


async def test_no_outage_lasts_longer_than_what_waits_for_the_destination() -> None:
    lake, scope = Collecting("lake"), Scope(*oplog(3))

    async def commit(identity: Any) -> None:
        raise Unavailable("the bucket is gone")

    lake.commit = commit  # type: ignore[method-assign]
    process = scope.process(lake.routed_to_commit(10, events=3))
    async with process.run():
        await process.until_state(WatcherState.WAITING)
        moved = desired(seek=4)
        await process.runtime.desired_states.write(moved)
        process.watcher.apply(moved)
        await process.until_state(WatcherState.CAUGHT_UP)
        assert process.watcher.status.recorders["lake"].down_since is None


async def test_a_commit_that_hangs_ends_with_its_time_limit_and_is_named_meanwhile() -> None:
    lake, scope = Collecting("lake"), Scope(*oplog(3))
    gate = anyio.Event()

    async def commit(identity: Any) -> None:
        await gate.wait()

    lake.commit = commit  # type: ignore[method-assign]
    policy = FailurePolicy(halt=True, timeout_seconds=0.2)
    process = scope.process(lake.routed_to_commit(10, events=3, failure=policy))
    async with process.run():
        await until(lambda: "handler 'lake'" in process.watcher.status.waits_for())
        await process.until_state(WatcherState.HALTED)
        assert "timeout_seconds" in process.reason


async def test_bytes_that_are_accepted_count_as_in_flight_until_the_commit() -> None:
    lake, scope = Collecting("lake"), Scope(*oplog(6))
    process = scope.process(lake.routed_to_commit(10))
    async with process.run():
        await until(lambda: len(lake.accepted) == 6)
        watermark = process.watcher.status.watermark
        assert watermark is not None
        assert watermark.size > 0
    assert process.budget.used == 0
