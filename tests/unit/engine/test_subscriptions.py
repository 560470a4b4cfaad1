"""Each handler of a scope has its own place in the stream: none holds another."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from tailrace.engine import Commit, Routed, RunIdentity, WatcherState, shared_stream, stream_slots
from tailrace.errors import Unavailable
from tailrace.event import ChangeEvent
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tests.handlers import handler
from tests.unit.engine.changes import changes, ddl, invalidate, number, settle, token, until
from tests.unit.engine.destinations import Table
from tests.unit.engine.destinations import oplog as documents
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Destination, Watching

SIZE = len(changes(1, 2)[0]) * 40
HALT = FailurePolicy(attempts=1, halt=True, backoff=Backoff(0, 0))


@pytest.fixture(autouse=True)
def comes_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_stream, "_FIRST_SECONDS", 0.0)


def attached(watching: Watching) -> bool:
    return not watching.watcher.apart


def open_streams(driver: ScriptedDriver) -> int:
    return sum(not (cursor.closed or cursor.killed) for cursor in driver.cursors)


def logged(watching: Watching, event: str) -> list[str]:
    return [log.get("handler", "") for log in watching.logs if log["event"] == event]


async def test_a_handler_that_would_hold_the_others_leaves_and_comes_back() -> None:
    quick, slow = Destination("quick"), Destination("slow")
    slow.held = {1}
    driver = ScriptedDriver(*changes(1, 200), batch_size=1)
    watching = Watching(driver, quick.routed(), slow.routed(concurrency=1), budget=5 * SIZE)
    async with watching.run():
        await until(lambda: len(quick.handled) == 199)
        assert slow.begun == [1]
        assert watching.watcher.apart["slow"].state is WatcherState.WAITING
        assert watching.budget.used <= SIZE, "its waiting events have left memory"
        slow.held = set()
        await until(lambda: len(slow.handled) == 199)
        await until(lambda: attached(watching))
        driver.oplog += changes(200, 230)
        await until(lambda: len(quick.handled) == len(slow.handled) == 229)
        assert open_streams(driver) == 1
    assert quick.handled == slow.handled == list(range(1, 230))
    assert logged(watching, "subscription.detached") == ["slow"]
    assert logged(watching, "subscription.attached") == ["slow"]
    assert watching.budget.used == 0


async def test_a_kill_while_one_is_away_repeats_nothing_that_the_other_has_saved() -> None:
    quick, slow = Destination("quick"), Destination("slow")
    slow.held = {1}
    driver = ScriptedDriver(*changes(1, 100), batch_size=1)
    first = Watching(
        driver,
        quick.routed(),
        slow.routed(concurrency=1),
        budget=5 * SIZE,
        checkpoint_seconds=0.001,
    )
    async with first.run():
        await until(lambda: len(quick.handled) == 99)
        saved = first.store.records
        last = lambda: saved["orders"].subscriptions["quick"].position.event_token  # noqa: E731
        await until(lambda: last() == token(99))
        first.store.failing = 1000
        first.running.cancel()
    first.store.failing = 0
    slow.held, slow.begun = set(), []
    second = Watching(driver, quick.routed(), slow.routed(concurrency=1), store=first.store)
    async with second.run():
        await until(lambda: len(slow.handled) == 99 and attached(second))
    assert quick.handled == slow.handled == list(range(1, 100))


async def test_a_handler_that_gives_up_halts_alone() -> None:
    fails, other = Destination("fails"), Destination("other")

    async def refuse(event: ChangeEvent) -> None:
        raise ValueError(f"event {number(event)}")

    fails.on_event = refuse  # type: ignore[method-assign]
    driver = ScriptedDriver(*changes(1, 30))
    watching = Watching(driver, fails.routed(failure=HALT), other.routed())
    async with watching.run():
        await until(lambda: len(other.handled) == 29)
        await until(lambda: "fails" in watching.watcher.apart)
        status = watching.watcher.apart["fails"]
        await until(lambda: status.state is WatcherState.HALTED)
        assert "ValueError: event 1" in status.reason
        driver.oplog += changes(30, 40)
        await until(lambda: len(other.handled) == 39)
    stored = watching.store.records["orders"]
    assert "ValueError" in stored.subscriptions["fails"].halted
    assert stored.subscriptions["other"].halted == ""


@pytest.mark.parametrize("kind", ["commit", "events", "batches"])
async def test_a_handler_that_fails_goes_on_from_its_own_position(kind: str) -> None:
    """The other one gets nothing again, and neither does one that stores its position."""
    other, table, plain = Destination("other"), Table("table"), Destination("plain")
    driver = ScriptedDriver(*documents(59))
    if kind == "commit":
        table.failing[20] = 1
        routed = table.routed(3, commits=True, whole_transactions=False)
    else:
        plain.failures[20] = 1
        routed = plain.routed() if kind == "events" else plain.routed_by_batch(4)
    watching = Watching(driver, other.routed(), routed)
    async with watching.run():
        await until(lambda: len(other.handled) == 59)
        await until(lambda: len(table.rows) == 59 or set(plain.handled) == set(range(1, 60)))
        await until(lambda: attached(watching))
    assert other.handled == list(range(1, 60))
    assert table.rows in ([], list(range(1, 60)))


@pytest.mark.parametrize("budget", [5 * SIZE, 1 << 20], ids=["detached before", "waited for"])
async def test_a_handler_that_is_away_at_an_invalidate_meets_the_others_behind_it(
    budget: int,
) -> None:
    """It keeps them neither before the invalidate nor at it."""
    quick, slow = Destination("quick"), Destination("slow")
    slow.held = {2}
    oplog = [*changes(1, 20), ddl(20), invalidate(20), *changes(21, 60)]
    driver = ScriptedDriver(*oplog, batch_size=1)
    watching = Watching(driver, quick.routed(), slow.routed(concurrency=1), budget=budget)
    async with watching.run():
        await until(lambda: 59 in quick.handled)
        slow.held = set()
        await until(lambda: 59 in slow.handled and attached(watching))
    assert quick.handled == slow.handled


class Away:
    """A destination that may be down, and counts the calls that run at the same time."""

    def __init__(self) -> None:
        self.down = True
        self.stored: list[int] = []
        self.refused = 0
        self.running = self.most = 0

    async def store(self, events: Sequence[ChangeEvent]) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await anyio.lowlevel.checkpoint()
        self.running -= 1
        if self.down:
            self.refused += 1
            raise Unavailable("refused", retry_after=0.001)
        self.stored += [number(event) for event in events]

    async def store_one(self, event: ChangeEvent) -> None:
        await self.store([event])

    async def commit(self, identity: RunIdentity) -> None:
        await self.store([])

    def routed(self, kind: str) -> Routed:
        if kind == "documents":
            return Routed(handler("away", self.store_one))
        fields: dict[str, Any] = {"batch_size": 2, "by_key": 4 if kind == "keys" else 1}
        if kind == "commit":
            fields["commit"] = Commit(self.commit, 4, 10**6, 0.0)
        return Routed(handler("away", on_events=self.store, **fields))

    async def until_tried_again(self) -> None:
        """Calls that have begun before the outage was known may still fail meanwhile."""
        await until(lambda before=self.refused: self.refused > before + 30)  # type: ignore[misc]
        self.most = 0
        await until(lambda before=self.refused: self.refused > before + 5)  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["documents", "keys", "batches", "commit"])
async def test_an_outage_longer_than_the_budget_is_waited_out_with_one_call(kind: str) -> None:
    """So is one that comes while the handler reads a stream of its own."""
    quick, away = Destination("quick"), Away()
    driver = ScriptedDriver(*changes(1, 200), batch_size=2)
    watching = Watching(driver, quick.routed(), away.routed(kind), budget=20 * SIZE)
    async with watching.run():
        await until(lambda: len(quick.handled) == 199)
        await until(lambda: "away" in watching.watcher.apart)
        await away.until_tried_again()
        assert away.most == 1
        assert open_streams(driver) == 1 or kind == "commit", "it ends its calls before it reads"
        assert "refused" in watching.watcher.apart["away"].reason
        await watching.until_state(WatcherState.CAUGHT_UP)
        away.down = False
        await until(lambda: len(away.stored) > 100)
        away.down = True
        assert not attached(watching)
        await away.until_tried_again()
        assert away.most == 1
        away.down = False
        await until(lambda: set(away.stored) == {*range(1, 200)} and attached(watching))


async def test_no_more_streams_than_allowed_are_open_at_once() -> None:
    quick, away = Destination("quick"), [Destination(f"away-{n}") for n in range(4)]
    for each in away:
        each.held = {1}
    driver = ScriptedDriver(*changes(1, 300), batch_size=1)
    routed = [each.routed(concurrency=1) for each in away]
    watching = Watching(driver, quick.routed(), *routed, budget=9 * SIZE, catch_up_streams=2)
    most = 0
    async with watching.run():
        await until(lambda: len(quick.handled) == 299)
        for each in away:
            each.held = set()
        while any(len(each.handled) < 299 for each in away) or not attached(watching):
            most = max(most, open_streams(driver))
            await anyio.lowlevel.checkpoint()
    assert most == 3
    assert all(each.handled == list(range(1, 300)) for each in away)


async def test_a_handler_whose_destination_is_down_again_leaves_its_stream_to_one_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both were away; one of them goes away again while it catches up with the only stream."""
    monkeypatch.setattr(stream_slots, "LOOK_SECONDS", 0.0)
    quick, first, second = Destination("quick"), Destination("first"), Destination("second")
    first.held = second.held = {1}
    down = False

    async def store(event: ChangeEvent) -> None:
        first.begun.append(number(event))
        while number(event) in first.held:
            await anyio.lowlevel.checkpoint()
        if down:
            raise Unavailable("it restarts", retry_after=0.001)
        first.handled.append(number(event))

    first.on_event = store  # type: ignore[method-assign]
    driver = ScriptedDriver(*changes(1, 200), batch_size=1)
    away = [each.routed(concurrency=1) for each in (first, second)]
    watching = Watching(driver, quick.routed(), *away, budget=9 * SIZE, catch_up_streams=1)
    async with watching.run():
        await until(lambda: len(quick.handled) == 199)
        await until(lambda: len(watching.watcher.apart) == 2)
        first.held = {20}
        await until(lambda: first.begun[-1] == 20)
        down, second.held, first.held = True, set(), set()
        await until(lambda: len(second.handled) == 199)
        assert first.handled == [*range(1, 20)]
        down = False
        await until(lambda: len(first.handled) == 199 and attached(watching))
    assert first.handled == second.handled == [*range(1, 200)]


async def test_one_that_flaps_stays_longer_on_its_own_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_stream, "_FIRST_SECONDS", 1.0)
    shared = shared_stream.SharedStream()
    lasts = []
    for _ in range(4):
        shared.left("slow")
        lasts.append(round(shared.back_at("slow") - anyio.current_time()))
    assert lasts == [1, 2, 4, 8]


async def test_a_handler_that_is_slow_for_a_moment_stays() -> None:
    """What it has not begun fits into memory."""
    quick, slow = Destination("quick"), Destination("slow")
    slow.held = {1}
    driver = ScriptedDriver(*changes(1, 40), batch_size=1)
    watching = Watching(driver, quick.routed(), slow.routed(concurrency=1))
    async with watching.run():
        await until(lambda: len(quick.handled) == 39)
        await settle()
        assert attached(watching)
        slow.held = set()
        await until(lambda: len(slow.handled) == 39)
    assert logged(watching, "subscription.detached") == []


async def test_the_first_that_is_done_does_not_wait_for_one_that_is_not() -> None:
    """Both hold as much when memory is spent; one goes on a moment later."""
    quick, slow = Destination("quick"), Destination("slow")
    quick.held, slow.held = {1}, {1}
    driver = ScriptedDriver(*changes(1, 200), batch_size=1)
    routed = quick.routed(concurrency=1), slow.routed(concurrency=1)
    watching = Watching(driver, *routed, budget=5 * SIZE)
    async with watching.run():
        await watching.until_state(WatcherState.WAITING)
        await settle()
        assert attached(watching)
        quick.held = set()
        await until(lambda: len(quick.handled) == 199)
        slow.held = set()
        await until(lambda: len(slow.handled) == 199 and attached(watching))
    assert quick.handled == slow.handled
