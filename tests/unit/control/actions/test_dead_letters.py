"""Dead letters in the process that follows their scope, while it goes on."""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import anyio
import anyio.lowlevel
import bson
import pytest

from tailrace.control.actions.dead_letters import (
    DISCARD,
    DISCARD_ONE,
    REPLAY_ONE,
    SHOW,
    LetterBody,
    LettersBody,
    LettersQuery,
)
from tailrace.control.actions.dead_letters import REPLAY as REPLAY_ALL
from tailrace.control.control import Control
from tailrace.control.outcome import ActionRefused
from tailrace.engine import WatcherState
from tailrace.engine.held_lease import HeldLease, ObservedLease
from tailrace.errors import DeadLetterError, Unavailable
from tailrace.event import ChangeEvent
from tailrace.model.dead_letter import DeadLetter, LetterHead
from tailrace.stores.memory import MemoryDeadLetters
from tests.contract.stores import letter
from tests.unit.control.controlling import ask, control_of
from tests.unit.engine.changes import change, number, settle, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Destination, Watching, running

BY = "ann"
ANY = LetterBody()
LETTERS = [letter(n, key=7) for n in (1, 2, 3)]


class Alone(Destination):
    """Notes the most calls that run at once; refuses ``refused`` events."""

    most = 0
    _now = 0
    refused: frozenset[int] = frozenset()
    down: Sequence[Exception] = ()

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await settle()
            if self.down:
                error, *self.down = self.down
                raise error
            if self.refused & {number(each) for each in events}:
                raise ValueError("still broken")
            await super().on_events(events)
        finally:
            self._now -= 1


def followed(
    destination: Destination, *waiting: DeadLetter, **fields: Any
) -> tuple[Watching, Control, MemoryDeadLetters]:
    store = MemoryDeadLetters(*(waiting or LETTERS))
    driver = ScriptedDriver(*(change(n) for n in range(10, 40)), batch_size=1)
    routed = destination.routed_by_batch(batch_size=1)
    one = Watching(driver, routed, letters=store, **fields)
    return one, control_of(one), store


async def shown(control: Control, **query: Any) -> Any:
    return json.loads(await ask(control, SHOW, "", LettersQuery(**query)))


async def test_letters_are_replayed_in_order_through_the_open_handler_beside_the_scope() -> None:
    """A handler that gets one call at a time gets one at a time. New letters of the document come,
    too: they are delivered after those that waited."""
    audit = Alone()
    one, control, store = followed(audit)
    async with running(control.supervisor):
        await until(lambda: bool(audit.handled))
        one.driver.oplog.append(change(50, key=7))
        done = await ask(control, REPLAY_ONE, LETTERS[1].id, ANY, BY)
        await until(lambda: len(audit.handled) >= 34)
        await one.until_state(WatcherState.CAUGHT_UP)
        if await store.letters():
            done = await ask(control, REPLAY_ONE, (await store.letters())[0].id, ANY, BY)
    assert done.details["failed"] == 0
    assert audit.most == 1
    of_7 = [n for n in audit.handled if n in (1, 2, 3, 50)]
    assert of_7 == [1, 2, 3, 50]
    assert sorted(audit.handled) == [1, 2, 3, *range(10, 40), 50]
    assert await store.letters() == []


async def test_a_letter_that_fails_again_keeps_those_behind_it() -> None:
    audit = Alone()
    audit.refused = frozenset({2})
    _, control, store = followed(audit)
    async with running(control.supervisor):
        await until(lambda: bool(audit.handled))
        done = await ask(control, REPLAY_ONE, LETTERS[0].id, ANY, BY)
        assert done.message == "replayed 1 dead letter; 1 failed again, 2 left"
        outcomes = [each["outcome"] for each in done.details["letters"]]
        assert outcomes == ["replayed", "failed: ValueError: still broken"]
        found = await shown(control, scope="orders", key="7")
        assert [each["id"] for each in found["letters"]] == [each.id for each in LETTERS[1:]]
        assert (await shown(control, handler="audit", key="7"))["count"] == 2
        assert (await shown(control, handler="odd", key="7"))["count"] == 0
        assert (await shown(control, key="8"))["count"] == 0
        gone = await ask(control, DISCARD_ONE, LETTERS[1].id, ANY, BY)
        assert gone.message == "discarded 1 dead letter"
        assert (await ask(control, REPLAY_ONE, LETTERS[2].id, ANY, BY)).details["left"] == 0
    assert await store.letters() == []


async def test_a_replay_waits_out_an_outage_of_the_destination(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No letter fails for it; if it takes longer than the answer may, the letters wait."""
    audit = Alone()
    _, control, store = followed(audit)
    async with running(control.supervisor):
        await until(lambda: len(audit.handled) == 30)
        audit.down = [Unavailable("in the rack", retry_after=0)] * 20
        done = await ask(control, REPLAY_ONE, LETTERS[0].id, ANY, BY)
        assert (done.details["replayed"], done.details["failed"]) == (3, 0)
        await store.add(letter(4, key=7), 1)
        monkeypatch.setattr("tailrace.control.letters.MOST_SECONDS", 0.01)
        audit.down = [Unavailable("in the rack", retry_after=3600)]
        done = await ask(control, REPLAY_ONE, letter(4).id, ANY, BY)
        assert "in the rack: try again" in done.message
        assert (done.details["failed"], done.details["left"]) == (0, 1)
        done = await ask(control, REPLAY_ONE, done.details["next"], ANY, BY)
        assert done.details["replayed"] == 1
    assert audit.handled[30:] == [1, 2, 3, 4]
    assert await store.letters() == []


async def test_a_replay_that_takes_long_names_the_letter_to_go_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audit = Alone()
    _, control, store = followed(audit)
    async with running(control.supervisor):
        await until(lambda: bool(audit.handled))
        monkeypatch.setattr("tailrace.control.letters.MOST_SECONDS", 0)
        next, asked = LETTERS[0].id, 0
        while next:
            details = (await ask(control, REPLAY_ONE, next, ANY, BY)).details
            next, asked = details.get("next"), asked + 1
    assert asked == 3
    assert await store.letters() == []


async def test_a_second_replay_at_once_is_refused() -> None:
    audit = Alone()
    audit.held = {1}
    _, control, store = followed(audit)
    async with running(control.supervisor), anyio.create_task_group() as tasks:
        await until(lambda: bool(audit.handled))
        tasks.start_soon(ask, control, REPLAY_ONE, LETTERS[0].id, ANY, BY)
        await until(lambda: 1 in audit.begun)
        for action in (REPLAY_ONE, DISCARD_ONE):
            with pytest.raises(ActionRefused, match="being replayed or discarded") as refused:
                await ask(control, action, LETTERS[0].id, ANY, BY)
            assert refused.value.status == 409
        audit.held = set()
    assert await store.letters() == []


@pytest.mark.parametrize(
    ("case", "status", "message"),
    [
        ("unknown", 404, "is not waiting"),
        ("standby", 409, "is followed by two, and not by this process: ask there"),
        ("starting", 409, "is starting: try again"),
        ("other scope", 409, "is not configured here"),
        ("other handler", 409, "gets no changes of scope 'orders' any more"),
        ("store", 503, "the disk is full"),
    ],
)
async def test_a_replay_that_cannot_be_is_refused(case: str, status: int, message: str) -> None:
    waiting = {
        "other scope": letter(1, scope="gone"),
        "other handler": letter(1, handler="gone"),
    }.get(case, LETTERS[0])
    lease = ObservedLease("two", 3, held=False, reason="two follows it")
    of_lease = {"lease": lambda scope: lease} if case == "standby" else {}
    one, control, store = followed(Alone(), waiting, **of_lease)
    if case not in ("starting", "standby"):
        one.watcher.claim.epoch = 1
    if case == "standby":
        one.watcher.status.enter(WatcherState.STANDBY)
    if case == "store":

        async def failing(*_: object, **__: object) -> Sequence[DeadLetter]:
            raise DeadLetterError("the disk is full")

        store.heads = failing  # type: ignore[assignment, method-assign]
    with pytest.raises(ActionRefused, match=message) as refused:
        await ask(control, REPLAY_ONE, "odd" if case == "unknown" else waiting.id, ANY, BY)
    assert refused.value.status == status
    assert await store.count()


async def test_a_scope_that_moves_during_a_replay_ends_it() -> None:
    audit = Alone()
    audit.held = {1}
    one, control, store = followed(audit)
    async with running(control.supervisor), anyio.create_task_group() as tasks:
        await until(lambda: bool(audit.handled))
        refusals: list[str] = []
        one.watcher.claim.lease = lease = HeldLease("orders", 1, inf)

        async def replay() -> None:
            with pytest.raises(ActionRefused) as refused:
                await ask(control, REPLAY_ONE, LETTERS[0].id, ANY, BY)
            refusals.append(str(refused.value))

        tasks.start_soon(replay)
        await until(lambda: 1 in audit.begun)
        lease.give_up()
        audit.held = set()
        await until(lambda: bool(refusals))
        assert refusals[0].startswith("replayed 0 dead letters, and the others still wait: scope")
        assert "another process may follow the scope now" in refusals[0]
    assert [each.id for each in await store.letters()] == [each.id for each in LETTERS]


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "is cancelled"])
async def test_a_handler_is_not_closed_in_the_call_of_a_replay(ends: bool) -> None:
    """What closes it first ends the replay: it waits for the call, then it cancels it."""
    audit = Alone()
    audit.held = {1}
    _, control, store = followed(audit)
    refusals, closed = list[str](), list[bool]()
    async with running(control.supervisor), anyio.create_task_group() as tasks:
        await until(lambda: bool(audit.handled))

        async def replay() -> None:
            with pytest.raises(ActionRefused) as refused:
                await ask(control, REPLAY_ONE, LETTERS[0].id, ANY, BY)
            refusals.append(str(refused.value))

        async def close() -> None:
            await control.supervisor.end_side_calls("orders", 60 if ends else 0)
            closed.append(True)

        tasks.start_soon(replay)
        await until(lambda: 1 in audit.begun)
        tasks.start_soon(close)
        if ends:
            await anyio.lowlevel.checkpoint()  # it has begun
            await anyio.lowlevel.checkpoint()
            assert not closed
            audit.held = set()
        await until(lambda: bool(closed and refusals))
        assert "was restarted, or changed by a reload: try again" in refusals[0]
        assert refusals[0].startswith(f"replayed {'1 dead letter' if ends else '0 dead letters'}")
    assert len(await store.letters()) == (2 if ends else 3)


class Counting(MemoryDeadLetters):
    """Counts the events that are read, and the letters that are listed."""

    events = listed = 0

    async def read(self, head: LetterHead) -> DeadLetter | None:
        self.events += 1
        return await super().read(head)

    async def heads(self, *names: Any, **page: Any) -> Sequence[LetterHead]:
        heads = await super().heads(*names, **page)
        self.listed += len(heads)
        return heads


def with_store(control: Control, store: MemoryDeadLetters) -> Control:
    return replace(control, runtime=replace(control.runtime, letters=store))


async def test_a_page_reads_only_the_events_that_it_shows() -> None:
    store = Counting(*(letter(n, key=n) for n in range(100)))
    control = with_store(followed(Alone())[1], store)
    first = await shown(control, limit=20)
    assert (first["count"], len(first["letters"]), store.events) == (100, 20, 20)
    assert store.listed == 21
    seen, page = [each["id"] for each in first["letters"]], first
    while page["next"] is not None:
        page = await shown(control, limit=30, after=page["next"])
        seen += [each["id"] for each in page["letters"]]
    assert seen == [letter(n).id for n in range(100)]
    store.events = 0
    assert (await shown(control, events=False))["letters"][99]["event"] is None
    assert store.events == 0
    with pytest.raises(ActionRefused, match="after: it is not the 'next' of an answer"):
        await shown(control, after="odd")


async def test_a_page_ends_where_its_events_have_many_bytes() -> None:
    large = bson.encode(change(1, fullDocument={"text": "x" * 3_000_000}))
    letters = [letter(n, raw=large, id=str(n)) for n in range(5)]
    control = with_store(followed(Alone())[1], MemoryDeadLetters(*letters))
    page = await shown(control)
    assert [each["id"] for each in page["letters"]] == ["0", "1"]
    rest = await shown(control, after=page["next"])
    assert [each["id"] for each in rest["letters"]] == ["2", "3"]


async def test_letters_are_replayed_and_discarded_by_filter_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue comes whole, also the letters of it that the filter does not choose."""
    audit = Alone()
    waiting = [
        *LETTERS,
        letter(4, key=8, error="TypeError: odd"),
        letter(5, key=9, error="TypeError: odd"),
        letter(6, key=9, error="", attempts=0),
        letter(7, key=10, scope="gone"),
    ]
    _, control, store = followed(audit, *waiting)
    async with running(control.supervisor):
        await until(lambda: bool(audit.handled))
        monkeypatch.setattr("tailrace.control.letters.MOST_SECONDS", 0)
        body, replayed, asked = LettersBody(error="TypeError"), list[str](), 0
        dry = await ask(control, REPLAY_ALL, "", LettersBody(error="TypeError", dry_run=True), BY)
        assert dry.message.startswith("3 dead letters of handler 'audit' of scope 'orders' would")
        while True:
            details = (await ask(control, REPLAY_ALL, "", body, BY)).details
            replayed += [each["id"] for each in details["letters"]]
            asked += 1
            if details["next"] is None:
                break
            body = LettersBody(error="TypeError", after=details["next"])
        assert replayed == [letter(n).id for n in (4, 5, 6)]
        assert asked == 3
        monkeypatch.setattr("tailrace.control.letters.MOST_SECONDS", 8)
        with pytest.raises(ActionRefused, match="say which"):
            await ask(control, DISCARD, "", LettersBody(), BY)
        gone = await ask(control, DISCARD, "", LettersBody(key="7", ids=[LETTERS[0].id]), BY)
        assert gone.message == "discarded 1 dead letter"
        done = await ask(control, REPLAY_ALL, "", LettersBody(), BY)
        assert done.message == (
            "replayed 2 dead letters; 0 failed again, 0 left. Not those of handler 'audit' of "
            "scope 'gone': scope 'gone' of that dead letter is not configured here: add it again, "
            "or discard the dead letter"
        )
        assert (await ask(control, DISCARD, "", LettersBody(scope="gone"), BY)).details["discarded"]
    assert await store.letters() == []


@pytest.mark.parametrize(
    ("after", "status", "message"),
    [
        ("~orders/audit/1", 400, "after: it is not the 'next' of an answer"),
        ("", 503, "discarded 1 dead letter; when the store answers, GET /dead-letters shows"),
    ],
    ids=["next of another", "store"],
)
async def test_a_discard_that_cannot_go_on_is_refused(
    monkeypatch: pytest.MonkeyPatch, after: str, status: int, message: str
) -> None:
    """What it has discarded before is told."""
    monkeypatch.setattr("tailrace.control.letter_choice._PAGE", 1)
    _, control, store = followed(Alone(), *LETTERS)
    heads, asked = store.heads, list[object]()

    async def failing(*filters: Any, **of: Any) -> Sequence[LetterHead]:
        asked.append(of)
        if len(asked) == 2:
            raise DeadLetterError("the disk is full")
        return await heads(*filters, **of)

    store.heads = failing  # type: ignore[method-assign]
    async with running(control.supervisor):
        await until(lambda: bool(control.watcher("orders").claim.epoch))
        with pytest.raises(ActionRefused, match=message) as refused:
            await ask(control, DISCARD, "", LettersBody(error="ValueError", after=after), BY)
    assert refused.value.status == status
    store.heads = heads  # type: ignore[method-assign]
    assert len(await store.letters()) == (3 if after else 2)
