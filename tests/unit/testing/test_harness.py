"""The harness: what a handler gets, and every fault that a test can plan."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tailrace import Batch, ChangeEvent, PermanentError, Refused, TemporaryError, Unavailable
from tailrace.errors import ConfigurationError
from tailrace.testing import Harness, NotHandled
from tailrace.testing.waits import until
from tests.unit.testing.destinations import Database, Good, of_events


async def test_a_function_gets_every_change_in_order() -> None:
    database = Database()
    async with Harness(of_events(database)) as harness:
        first = harness.changes.insert({"_id": 1})
        second = harness.changes.update(1, {"state": "paid"})
        await harness.handled()
        assert database.log == [first.id, second.id]
        assert database.rows == {1: {"_id": 1, "state": "paid"}}


async def test_a_configured_type_is_run_as_the_service_runs_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    async with Harness({"type": "jsonl", "path": path}) as harness:
        harness.changes.insert({"_id": 1})
        await harness.saved()
    assert '"operationType":"insert"' in path.read_text().replace(" ", "")


class Shelf:
    """A class with options and a life."""

    events: list[str] = []  # noqa: RUF012 - a database of this test

    def __init__(self, label: str) -> None:
        self.label = label

    async def __aenter__(self) -> Self:
        self.events.append(f"{self.label} opened")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.events.append(f"{self.label} closed")

    async def write(self, batch: Batch) -> None:
        self.events.append(f"{len(batch)} written")


async def test_a_class_is_made_with_its_options_opened_and_closed_by_each_process() -> None:
    Shelf.events.clear()
    async with Harness(Shelf, {"label": "a"}, handler={"batch_size": 2}) as harness:
        for number in range(3):
            harness.changes.insert({"_id": number})
        await harness.handled()
        await harness.restart()
    assert Shelf.events == [
        *("a opened", "2 written", "1 written", "a closed"),
        *("a opened", "a closed"),
    ]


async def test_options_that_do_not_fit_are_refused_as_in_the_configuration() -> None:
    with pytest.raises(ConfigurationError, match=r"options\.lable: is not an option of Shelf"):
        async with Harness(Shelf, {"lable": "a"}):
            pass
    with pytest.raises(TypeError, match=r"lambda: Orders\(pool\)"):
        Harness(Good, {"database": Database()})


@pytest.mark.parametrize("error", [Unavailable("down"), ConnectionRefusedError("down")])
async def test_an_outage_is_waited_out_and_costs_no_attempt(error: Exception) -> None:
    database = Database()
    async with Harness(of_events(database)) as harness:
        harness.outage(20, error)
        harness.changes.insert({"_id": 1})
        await harness.handled()
        assert list(database.rows) == [1]
        assert await harness.dead_letters() == []


async def test_a_test_does_not_wait_as_long_as_a_handler_asks_for() -> None:
    tries: list[Exception] = [Unavailable("down", 3600), TemporaryError("later", 3600)]
    handled: list[ChangeEvent] = []

    async def apply(event: ChangeEvent) -> None:
        if tries:
            raise tries.pop()
        handled.append(event)

    async with Harness(apply) as harness:
        harness.changes.insert({"_id": 1})
        await harness.handled()
    assert len(handled) == 1


async def test_a_destination_that_is_down_at_the_start_is_waited_for() -> None:
    database, tries = Database(), iter([ConnectionError("down"), None])

    class Late(Good):
        async def __aenter__(self) -> Self:
            if error := next(tries):
                raise error
            return await super().__aenter__()

    async with Harness(lambda: Late(database)) as harness:
        harness.changes.insert({"_id": 1})
        await harness.handled()
    assert list(database.rows) == [1]


async def test_an_error_is_tried_again_and_becomes_a_dead_letter_after_the_last_attempt() -> None:
    database = Database()
    async with Harness(of_events(database)) as harness:
        harness.fail(RuntimeError("wrong"), calls=4)
        harness.changes.insert({"_id": 1})
        await harness.handled()
        harness.fail(RuntimeError("wrong"), calls=5)
        failed = harness.changes.insert({"_id": 2})
        harness.changes.update(2, {"state": "paid"})
        await harness.handled()
        first, second = await harness.dead_letters()
    assert list(database.rows) == [1]
    assert (first.event.id, first.reason, first.attempts) == (failed.id, "RuntimeError: wrong", 5)
    assert (second.event.operation_type, second.attempts) == ("update", 0)


async def test_dead_letters_tell_what_the_handler_itself_refused() -> None:
    async def refuse(events: Sequence[ChangeEvent]) -> None:
        refused = {
            n: "no state"
            for n, each in enumerate(events)
            if not (each.full_document or {}).get("state")
        }
        if refused:
            raise Refused(refused)

    async with Harness(refuse) as harness:
        harness.changes.insert({"_id": 1, "state": "new"})
        harness.changes.insert({"_id": 2})
        await harness.handled()
        (letter,) = await harness.dead_letters()
    assert letter.event.document_key == {"_id": 2}
    assert letter.reason == "the destination refuses it: no state"


@pytest.mark.parametrize(
    ("when", "step", "calls"),
    [("before", 1, 1), ("inside", 1, 2), ("inside", 2, 1), ("after", 1, 1)],
)
async def test_a_process_is_killed_around_a_call_and_the_next_one_goes_on(
    when: Any, step: int, calls: int
) -> None:
    database = Database()
    opened: list[Good] = []

    def make() -> Good:
        opened.append(Good(database))
        return opened[-1]

    async with Harness(make) as harness:
        fault = harness.kill(when, step=step)
        harness.changes.insert({"_id": 1})
        await harness.handled()
        assert fault.hit
        assert len(harness.delivered) == calls
    assert len(opened) == 2
    assert len(database.log) == 1


async def test_a_kill_in_on_ddl_repeats_it() -> None:
    database = Database()
    seen: list[str] = []

    class Told(Good):
        async def on_ddl(self, event: ChangeEvent) -> None:
            seen.append(event.operation_type)

    async with Harness(lambda: Told(database)) as harness:
        harness.changes.insert({"_id": 1})
        harness.kill("after", method="on_ddl")
        harness.changes.drop()
        await harness.handled()
    assert seen == ["drop", "drop", "invalidate"]


async def test_a_fault_at_an_await_that_no_call_reaches_is_not_hit() -> None:
    async with Harness(of_events(Database())) as harness:
        fault = harness.kill("inside", step=2)
        harness.changes.insert({"_id": 1})
        await harness.handled()
        assert not fault.hit


@pytest.mark.parametrize("until", ["handled", "begun"])
async def test_another_process_with_a_greater_epoch_takes_over_from_a_paused_one(
    until: Any,
) -> None:
    database = Database()
    async with Harness(lambda: Good(database)) as harness:
        harness.hand_over("inside", step=1, until=until)
        change = harness.changes.insert({"_id": 1})
        await harness.handled()
        assert database.log == [change.id]
        assert database.epochs["orders"] > 1


async def test_a_paused_process_may_have_handled_everything_when_the_other_one_begins() -> None:
    """Nothing is left that it could write, so no fence tells it that it was replaced."""
    database = Database()
    opened: list[Good] = []

    class Late(Good):
        async def __aenter__(self) -> Self:
            opened.append(self)
            if len(opened) == 2:
                await until(lambda: bool(database.log), seconds=5)
                for _ in range(5000):  # the first one saves its checkpoint meanwhile
                    await checkpoint()
            return await super().__aenter__()

    async with Harness(lambda: Late(database), seconds=5) as harness:
        harness.hand_over("inside", step=1)
        change = harness.changes.insert({"_id": 1})
        await harness.handled()
        assert len(opened) == 2
        assert database.log == [change.id]
        harness.changes.insert({"_id": 2})
        await harness.handled()
    assert list(database.rows) == [1, 2]


async def test_changes_come_again_from_an_older_checkpoint() -> None:
    database = Database()
    async with Harness(of_events(database)) as harness:
        ids = [harness.changes.insert({"_id": number}).id for number in range(4)]
        await harness.saved()
        await harness.restart(repeat=2)
        await harness.handled()
    assert database.log == [*ids, *ids[2:]]


async def test_documents_that_were_there_before_come_as_rows() -> None:
    database = Database()
    harness = Harness(of_events(database), scope={"snapshot": "initial"})
    harness.changes.insert({"_id": 1})
    async with harness:
        await harness.handled()
        assert database.rows == {1: {"_id": 1}}
        harness.changes.delete(1)
        harness.changes.insert({"_id": 2})
        await harness.snapshot()
    assert [event.operation_type for event in harness.delivered if event.key] == [
        *("read", "delete", "insert", "read"),
    ]


async def test_a_halted_scope_fails_the_test_with_its_reason() -> None:
    async def refuse(event: ChangeEvent) -> None:
        raise PermanentError("never")

    async with Harness(refuse, handler={"on_failure": "halt"}) as harness:
        harness.changes.insert({"_id": 1})
        with pytest.raises(NotHandled, match="PermanentError: never"):
            await harness.handled()


async def test_a_handler_that_never_returns_fails_the_test_in_time() -> None:
    async def hang(event: ChangeEvent) -> None:
        await anyio.sleep_forever()

    async with Harness(hang, seconds=0.05) as harness:
        harness.changes.insert({"_id": 1})
        with pytest.raises(NotHandled, match=r"not handled within 0\.05 s"):
            await harness.handled()
        harness.kill_now()


async def test_a_pipeline_is_refused_because_nothing_here_runs_it() -> None:
    with pytest.raises(NotHandled, match="runs no pipeline"):
        async with Harness(of_events(Database()), scope={"pipeline": [{"$match": {}}]}) as harness:
            await harness.handled()


async def test_nothing_of_a_start_that_does_not_end_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A test that fails so is over, and what its handler has begun with it."""
    monkeypatch.setattr("tailrace.testing.harness._START_SECONDS", 0.0)
    life: list[str] = []

    class Hanging:
        async def __aenter__(self) -> None:
            life.append("begun")
            try:
                await anyio.sleep_forever()
            finally:
                life.append("ended")

        async def __aexit__(self, *error: object) -> None: ...

        async def write(self, batch: Batch) -> None: ...

    with pytest.raises(NotHandled, match="not handled within"):
        async with Harness(Hanging, seconds=0.1):
            raise AssertionError("it has not begun")
    assert life in ([], ["begun", "ended"])
