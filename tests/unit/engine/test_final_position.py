"""Events handled before a stop are not handed over again, whatever else was not handled."""

from collections import Counter
from typing import Any

import pytest

from tailrace.engine import Routed, WatcherState, handler_run
from tailrace.model import Checkpoint
from tailrace.stores.memory import MemoryDeadLetters
from tests.handlers import handler
from tests.unit.engine.changes import Document, time, token, until
from tests.unit.engine.destinations import Plain, Table, event, oplog
from tests.unit.engine.read.test_transactions import in_transaction
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import Watching


class Scope:
    """Consecutive processes on one oplog and one store."""

    def __init__(self, *events: Document, batch_size: int = 1000) -> None:
        self.driver = ScriptedDriver(*events, batch_size=batch_size)
        self.store = ScriptedStore()
        self.letters = MemoryDeadLetters()
        self.last: Watching

    def process(self, *handlers: Any, **fields: Any) -> Watching:
        self.last = Watching(
            self.driver,
            *handlers,
            store=self.store,
            letters=self.letters,
            **fields,
        )
        return self.last

    @property
    def checkpoint(self) -> Checkpoint:
        return self.store.records["orders"]

    async def caught_up(self) -> None:
        """Waits until everything is handled and the following empty reply has come, in one
        stream."""
        watcher = self.last.watcher
        await until(
            lambda: (
                watcher.status.state is WatcherState.CAUGHT_UP
                and watcher.status.watermark is not None
                and watcher.status.watermark.empty
                and not watcher.apart
            )
        )


async def test_events_set_aside_count_as_handled() -> None:
    audit, lake, scope = Plain("audit"), Plain("lake"), Scope(*oplog(20))
    audit.failing, audit.poison, lake.poison = Counter([1]), {7}, {7}
    handlers = [audit.routed(), lake.routed_by_batch(20)]
    async with scope.process(*handlers).run():
        await until(lambda: len(audit.handled) == 18 and len(lake.handled) == 19)
    for letter in await scope.letters.letters():
        await scope.letters.resolve(letter, "discarded")
    async with scope.process(*handlers).run():
        await scope.caught_up()
    assert sorted(audit.handled) == lake.handled == [*range(1, 7), *range(8, 21)]
    assert await scope.letters.letters() == []


async def test_a_destination_does_not_go_back_to_the_last_dead_letter() -> None:
    table, scope = Table("table"), Scope(*oplog(9))
    table.poison = {8, 9}
    async with scope.process(table.routed(3)).run():
        await scope.caught_up()
    assert table.token == token(7)
    for letter in await scope.letters.letters():
        await scope.letters.resolve(letter, "discarded")
    async with scope.process(table.routed(3)).run():
        await scope.caught_up()
    assert scope.driver.start_options[-1] == "resume after 9"
    assert table.rows == list(range(1, 8))
    assert await scope.letters.letters() == []


async def test_no_position_lies_inside_a_transaction_for_a_handler_that_takes_them_whole() -> None:
    inside = [in_transaction(n, 4, _id=token(4, f"2B{n}").document) for n in range(4, 9)]
    for n, document in enumerate(inside, 4):
        document["n"] = n
    audit, table = Plain("audit"), Table("table")
    scope = Scope(*oplog(3), *inside, *(event(n) for n in range(9, 12)))
    audit.failing = Counter([6])
    handlers = [audit.routed(), table.routed(2, whole_transactions=True)]
    async with scope.process(*handlers).run():
        await until(lambda: len(audit.handled) == 10 and len(table.rows) == 11)
    tokens = {token(4, f"2B{n}") for n in range(4, 8)}
    saved, other = scope.checkpoint.of("table"), scope.checkpoint.of("audit")
    assert saved is not None
    assert not {saved.position.event_token, saved.position.high_water} & tokens
    # For a handler of single events it may be there.
    assert other is not None
    assert other.position.event_token == token(4, "2B5")
    async with scope.process(*handlers).run():
        await scope.caught_up()
    assert sorted(audit.handled) == table.rows == list(range(1, 12))


async def test_each_handler_has_its_own_position_and_its_own_single_events() -> None:
    audit, lake, scope = Plain("audit"), Plain("lake"), Scope(*oplog(20))
    audit.failing, lake.failing = Counter([3]), Counter([5, 9])
    handlers = [audit.routed(), lake.routed()]
    async with scope.process(*handlers).run():
        await until(lambda: len(audit.handled) == 19 and len(lake.handled) == 18)
    for name, last, single in (("audit", 2, 17), ("lake", 4, 14)):
        saved = scope.checkpoint.of(name)
        assert saved is not None
        assert saved.position.event_token == token(last)
        assert (len(saved.position.handled), saved.position.until) == (single, time(20))
    async with scope.process(*handlers).run():
        await scope.caught_up()
    assert sorted(audit.handled) == sorted(lake.handled) == list(range(1, 21))
    assert scope.driver.start_options[1:] == ["resume after 2"]
    for name in ("audit", "lake"):
        saved = scope.checkpoint.of(name)
        assert saved is not None
        assert saved.position.handled == frozenset()
    assert scope.checkpoint.handlers == ("audit", "lake")


async def test_a_handler_without_an_event_of_its_own_is_where_the_stream_is() -> None:
    """Not where another one waits."""
    audit, scope = Plain("audit"), Scope(*oplog(20))
    audit.failing = Counter([3])
    rest = Plain("rest")
    none = Routed(handler("rest", rest.on_event), lambda event: False)
    async with scope.process(audit.routed(), none).run():
        await until(lambda: len(audit.handled) == 19)
    saved = scope.checkpoint.of("rest")
    assert saved is not None
    assert saved.position.event_token == token(20)


@pytest.mark.parametrize("others", [0, 1])
async def test_more_than_a_checkpoint_may_note_comes_again(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """The record is bounded, whatever the number of handlers."""
    most = 10 // (1 + others)
    monkeypatch.setattr(handler_run, "MOST_NOTED", 10)
    scope = Scope(*oplog(30))
    handlers = [Plain("audit"), *(Plain(f"other-{n}") for n in range(others))]
    for each in handlers:
        each.failing = Counter([3])
    async with scope.process(*(each.routed() for each in handlers)).run():
        await until(lambda: all(len(each.handled) == 29 for each in handlers))
    async with scope.process(*(each.routed() for each in handlers)).run():
        await scope.caught_up()
    for each in handlers:
        again = Counter(each.handled)
        assert [n for n in range(1, 31) if again[n] == 2] == list(range(4 + most, 31))
