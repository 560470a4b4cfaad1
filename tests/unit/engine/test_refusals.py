"""A destination that refuses events, or fences its handler."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import Fenced, Refused
from tailrace.engine import WatcherState
from tailrace.errors import DeadLetterError
from tailrace.event import ChangeEvent
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.failure_policy import FailurePolicy
from tailrace.stores.memory import MemoryDeadLetters
from tests.unit.engine.changes import change, changes, number, time, token, until
from tests.unit.engine.database import Database
from tests.unit.engine.destinations import Table, key
from tests.unit.engine.read.test_transactions import in_transaction
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import AT_ONCE, Watching


class Refusing(Database):
    """Refuses the events in ``odd``, and then stores nothing of their batch."""

    def __init__(self, *odd: int) -> None:
        super().__init__()
        self.odd = set(odd)

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        numbers = [number(event) for event in events]
        refused = {at: "it is odd" for at, n in enumerate(numbers) if n in self.odd}
        if refused:
            self.calls.append(numbers)
            raise Refused(refused)
        await super().on_events(events)


async def set_aside(letters: MemoryDeadLetters) -> list[tuple[int, str]]:
    found = await letters.letters()
    return [(number(ChangeEvent.from_raw(each.raw)), each.error) for each in found]


@pytest.mark.parametrize("form", ["events", "position"])
async def test_only_refused_events_become_dead_letters_without_another_attempt(form: str) -> None:
    """Later events of the same key follow; an earlier one of that key is stored."""
    keys = {1: "a", 2: "b", 3: "a", 4: "a", 5: "b"}
    driver = ScriptedDriver(*(change(n, key) for n, key in keys.items()), batch_size=5)
    database, letters = Refusing(3), MemoryDeadLetters()
    async with Watching(driver, database.routed(form), letters=letters).run() as watching:
        await until(lambda: database.stored == [1, 2, 5])
        await watching.until_state(WatcherState.CAUGHT_UP)
        driver.oplog += [change(6, "a"), change(7, "c")]
        await until(lambda: database.stored == [1, 2, 5, 7])
        await watching.until_state(WatcherState.CAUGHT_UP)
    assert await set_aside(letters) == [
        (3, "the destination refuses it: it is odd"),
        (4, ""),
        (6, ""),
    ]
    after = [[1, 2, 5]] if form == "events" else [[1, 2], [5]]  # no position before the dead letter
    assert database.calls[: 1 + len(after)] == [[1, 2, 3, 4, 5], *after]


@pytest.mark.parametrize("reasons", [{}, {9: "no such event"}, {-1: "x"}, {True: "x"}])
async def test_reasons_about_no_event_of_the_batch_are_an_ordinary_failure(
    reasons: dict[int, str],
) -> None:
    database, letters = Database(), MemoryDeadLetters()
    database.error = Refused(reasons)
    driver = ScriptedDriver(*changes(1, 3))
    async with Watching(driver, database.routed("events"), letters=letters).run() as watching:
        await until(lambda: len(database.calls) == 4)  # two of the batch, one of each event
        await watching.until_state(WatcherState.CAUGHT_UP)
    assert len(await letters.letters()) == 2


@pytest.mark.parametrize("form", ["events", "position"])
async def test_nothing_after_a_refusal_that_halts_is_handed_over(form: str) -> None:
    """After a repair, what was refused comes before what follows it."""
    database, store = Refusing(2), ScriptedStore()
    driver = ScriptedDriver(*changes(1, 4))
    routed = database.routed(form, failure=FailurePolicy(halt=True))
    watching = Watching(driver, routed, store=store)
    await watching.to_the_end()
    assert watching.watcher.status.state is WatcherState.HALTED
    assert "the destination refuses it: it is odd" in watching.reason
    assert database.stored == [1]
    database.odd.clear()
    async with Watching(driver, routed, store=store).run():
        await until(lambda: database.stored == [1, 2, 3])


class RefusingTable(Table):
    """Refuses the events in ``odd``: of a batch, of what it accepts, or of what it commits."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.odd: set[int] = set()

    async def attempt(self, events: Sequence[ChangeEvent]) -> list[int]:
        if refused := {at: "odd" for at, each in enumerate(events) if key(each) in self.odd}:
            raise Refused(refused)
        return await super().attempt(events)

    async def take(self, events: Any) -> None:
        await self.attempt(events)
        await super().take(events)


@dataclass(frozen=True)
class Life:
    """One process: what its table refuses, the answers that are lost, and how it ends."""

    odd: frozenset[int]
    lost: int
    turns: int
    killed: bool
    letters_away: bool


lives = st.builds(
    Life,
    odd=st.frozensets(st.integers(1, 24), max_size=6),
    lost=st.integers(0, 2),
    turns=st.integers(0, 200),
    killed=st.booleans(),
    letters_away=st.sampled_from([False, False, True]),
)


class AwayLetters(MemoryDeadLetters):
    """A store of dead letters that may not answer."""

    away = False

    async def add(self, letter: DeadLetter, epoch: int) -> None:
        if self.away:
            raise DeadLetterError("the disk is full")
        await super().add(letter, epoch)


@settings(deadline=None, max_examples=40)
@given(
    size=st.integers(1, 12),
    replies=st.integers(1, 24),
    keys=st.integers(1, 5),
    commits=st.booleans(),
    whole=st.booleans(),
    policy=st.sampled_from(
        [
            FailurePolicy(halt=True, backoff=AT_ONCE),
            FailurePolicy(attempts=2, backoff=AT_ONCE),
            FailurePolicy(attempts=1, backoff=AT_ONCE, max_consecutive=1),
        ]
    ),
    course=st.lists(lives, min_size=1, max_size=5),
)
async def test_no_position_is_stored_past_an_event_that_is_not_handled(
    size: int,
    replies: int,
    keys: int,
    commits: bool,
    whole: bool,
    policy: FailurePolicy,
    course: list[Life],
) -> None:
    """Whatever is refused, halts, is killed, and starts again."""
    oplog = [
        in_transaction(n, n // 3, clusterTime=time(n), documentKey={"_id": n % keys}) | {"n": n}
        for n in range(1, 25)
    ]
    driver = ScriptedDriver(*oplog, batch_size=replies)
    table, store, letters = RefusingTable("table"), ScriptedStore(), AwayLetters()
    routed = table.routed(size, commits=commits, whole_transactions=whole, failure=policy)

    async def check() -> set[int]:
        handled = {*table.rows, *[n for n, _ in await set_aside(letters)]}
        saved = store.records.get("orders")
        for position in (table.token, saved and saved.position.event_token):
            reached = next((n for n in range(1, 25) if position == token(n)), 0)
            assert handled >= set(range(1, reached + 1))
        return handled

    for life in course:
        table.odd, table.lost, letters.away = set(life.odd), life.lost, life.letters_away
        watching = Watching(driver, routed, store=store, letters=letters)
        async with watching.run():
            for _ in range(life.turns):
                await anyio.lowlevel.checkpoint()
            if life.killed:
                store.failing = 1000
                watching.running.cancel()
        store.failing = 0
        await check()
    table.odd, table.lost, letters.away = set(), 0, False
    async with Watching(driver, routed, store=store, letters=letters).run():
        while await check() != set(range(1, 25)):
            await anyio.lowlevel.checkpoint()
    assert sorted(table.rows) == table.rows


@pytest.mark.parametrize("form", ["event", "events", "position"])
async def test_a_handler_that_is_fenced_gives_the_scope_up(form: str) -> None:
    database, letters = Database(), MemoryDeadLetters()
    driver = ScriptedDriver(*changes(1, 4))
    async with Watching(driver, database.routed(form), letters=letters).run(stop=False) as watching:
        await until(lambda: len(database.stored) == 3)
        database.error = Fenced("epoch 8 writes here")
        driver.oplog.append(change(4))
    assert watching.watcher.fenced
    assert "handler 'table' was fenced by its destination" in watching.reason
    assert "epoch 8 writes here" in watching.reason
    assert await letters.letters() == []


@pytest.mark.parametrize("form", ["event", "events", "position"])
async def test_a_filter_that_fails_passes_no_event_over(form: str) -> None:
    """Also where the events were taken from the queue together."""
    database, store = Database(), ScriptedStore()
    driver = ScriptedDriver(*changes(1, 4), batch_size=3)
    routed = database.routed(form)

    def wants(event: ChangeEvent) -> bool:
        if number(event) == 2:
            raise ValueError("no such field")
        return True

    watching = Watching(driver, replace(routed, wants=wants), store=store)
    async with watching.run():
        await until(lambda: "no such field" in watching.last_error)
    async with Watching(driver, routed, store=store).run() as watching:
        await until(lambda: sorted(set(database.stored)) == [1, 2, 3])
