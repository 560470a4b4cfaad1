"""A destination that does not answer holds no other: at the start, at a gap, when a run ends."""

import asyncio
from collections.abc import Sequence

import anyio
import pytest

from tailrace.engine import WatcherState, handler_runs, questions, shared_stream
from tailrace.engine.ports import RunIdentity
from tailrace.errors import Unavailable
from tailrace.model import SinkPosition
from tailrace.model.gap import Gap
from tests.unit.engine.changes import changes, until
from tests.unit.engine.destinations import Table
from tests.unit.engine.destinations import oplog as documents
from tests.unit.engine.scripted_driver import ScriptedDriver, refused
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.test_desired_states import desired
from tests.unit.engine.test_watcher_halts import STORED
from tests.unit.engine.watching import Destination, Watching


class Silent(Table):
    """It answers no question until ``speaks`` is set."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.speaks = anyio.Event()
        self.asked = 0

    async def position(self, owner: RunIdentity) -> SinkPosition | None:
        self.asked += 1
        await self.speaks.wait()
        return await super().position(owner)


class SilentOfGaps(Table):
    """It answers everything but what it is told of a gap; or it is down then."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        super().__init__(name)
        self.speaks = anyio.Event()
        self.error = error

    async def skipped(self, owner: RunIdentity, gap: Gap) -> None:
        if self.error is not None and not self.speaks.is_set():
            raise self.error
        await self.speaks.wait()
        await super().skipped(owner, gap)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(handler_runs, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(shared_stream, "_FIRST_SECONDS", 0.0)


def left(watching: Watching) -> list[str]:
    return [log["handler"] for log in watching.logs if log["event"] == "subscription.detached"]


@pytest.mark.parametrize("silent", [("a",), ("c",), ("a", "b")])
async def test_the_others_begin_without_those_that_do_not_answer(silent: Sequence[str]) -> None:
    tables = {name: Silent(name) for name in "abc"}
    for name in set(tables) - set(silent):
        tables[name].speaks.set()
    driver = ScriptedDriver(*documents(20))
    watching = Watching(driver, *(each.routed(5) for each in tables.values()))
    async with watching.run():
        others = [tables[name] for name in tables if name not in silent]
        await until(lambda: all(each.rows == [*range(1, 21)] for each in others))
        await until(lambda: all(tables[name].asked == 2 for name in silent))
        assert set(watching.watcher.apart) == set(left(watching)) == set(silent)
        for name in silent:
            tables[name].speaks.set()
        await until(lambda: not watching.watcher.apart)
    assert all(each.rows == [*range(1, 21)] for each in tables.values())


async def test_a_stop_ends_the_questions_of_all() -> None:
    one, other, answers = Silent("a"), Silent("b"), Silent("c")
    answers.speaks.set()
    handlers = [each.routed(5) for each in (one, other, answers)]
    watching = Watching(ScriptedDriver(*documents(5)), *handlers)
    async with watching.run():
        await until(lambda: answers.rows == [1, 2, 3, 4, 5] and one.asked == other.asked == 2)
    assert watching.watcher.status.state is WatcherState.STOPPED


class CancelsTasks(Table):
    """The first question makes it cancel the tasks of all questions."""

    asked = 0

    async def position(self, owner: RunIdentity) -> SinkPosition | None:
        self.asked += 1
        if self.asked == 1:
            for task in asyncio.all_tasks():
                if task.get_name().startswith("question to"):
                    task.cancel()
        return await super().position(owner)


async def test_a_handler_that_cancels_the_tasks_of_questions_ends_nothing() -> None:
    odd, other = CancelsTasks("odd"), Table("other")
    watching = Watching(ScriptedDriver(*documents(5)), odd.routed(5), other.routed(5))
    async with watching.run():
        await until(lambda: odd.rows == other.rows == [1, 2, 3, 4, 5])
        await until(lambda: not watching.watcher.apart)


async def test_if_none_answers_the_last_one_is_waited_for_where_it_is() -> None:
    one, other = Silent("a"), Silent("b")
    watching = Watching(ScriptedDriver(*documents(5)), one.routed(5), other.routed(5))
    async with watching.run():
        await until(lambda: one.asked == other.asked == 1)
        other.speaks.set()
        await until(lambda: other.rows == [1, 2, 3, 4, 5])
        one.speaks.set()
        await until(lambda: one.rows == [1, 2, 3, 4, 5] and not watching.watcher.apart)


@pytest.mark.parametrize("error", [None, Unavailable("restarts", retry_after=0), ValueError("no")])
async def test_the_others_begin_after_a_gap_without_those_that_do_not_take_it(
    error: Exception | None,
) -> None:
    driver, store = ScriptedDriver(*documents(4)), ScriptedStore(STORED)
    driver.refused_starts = {"resume after 2": refused(286), "at 2": refused(286)}
    silent, table = SilentOfGaps("silent", error), Table("table")
    watching = Watching(
        driver, silent.routed(5), table.routed(5), store=store, skip_lost_history=True
    )
    async with watching.run():
        await until(lambda: len(table.gaps) == 1)
        await until(lambda: list(watching.watcher.apart) == ["silent"])
        driver.oplog += documents(6)[4:]
        await until(lambda: table.rows == [5, 6])
        assert (silent.gaps, silent.rows) == ([], [])
        silent.speaks.set()
        await until(lambda: bool(silent.gaps) and not watching.watcher.apart)
        driver.oplog += documents(7)[6:]
        await until(lambda: table.rows == [5, 6, 7] and silent.rows[-1:] == [7])


async def test_a_call_without_an_end_does_not_hold_what_an_order_wants_of_the_others() -> None:
    quick, slow = Destination("quick"), Destination("slow")
    slow.held = {3}
    watching = Watching(ScriptedDriver(*changes(1, 6)), quick.routed(), slow.routed(concurrency=1))
    async with watching.run():
        await until(lambda: len(quick.handled) == 5 and slow.begun[-1:] == [3])
        watching.watcher.apply(desired(paused=True))
        await watching.until_state(WatcherState.PAUSED)
        assert list(watching.watcher.apart) == left(watching) == ["slow"]
        watching.driver.oplog += changes(6, 9)
        watching.watcher.apply(desired(2))
        await until(lambda: len(quick.handled) == 8)
        slow.held = set()
        await until(lambda: len(slow.handled) == 8 and not watching.watcher.apart)
    assert quick.handled == slow.handled == [*range(1, 9)]
