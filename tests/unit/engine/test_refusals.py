"""A destination that refuses events, or fences its handler."""

from collections.abc import Sequence

import pytest

from tailrace import Fenced, Refused
from tailrace.engine import WatcherState
from tailrace.event import ChangeEvent
from tailrace.model.failure_policy import FailurePolicy
from tailrace.stores.memory import MemoryDeadLetters
from tests.unit.engine.changes import change, changes, number, until
from tests.unit.engine.database import Database
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Watching


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
    assert database.calls[:2] == [[1, 2, 3, 4, 5], [1, 2, 5]]


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


async def test_a_refusal_halts_a_handler_that_may_not_make_dead_letters() -> None:
    database = Refusing(2)
    routed = database.routed("position", failure=FailurePolicy(halt=True))
    watching = Watching(ScriptedDriver(*changes(1, 4)), routed)
    await watching.to_the_end()
    assert watching.watcher.status.state is WatcherState.HALTED
    assert "the destination refuses it: it is odd" in watching.reason
    assert database.stored == [1, 3]


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
