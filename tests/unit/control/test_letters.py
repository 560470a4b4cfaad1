"""Dead letters in the process that follows their scope, while it goes on."""

from collections.abc import Sequence
from math import inf
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tailrace.control import ActionRefused, Control
from tailrace.control.bodies import LetterBody, LettersQuery
from tailrace.engine import Supervisor, WatcherState
from tailrace.engine.held_lease import HeldLease, ObservedLease
from tailrace.errors import DeadLetterError
from tailrace.event import ChangeEvent
from tailrace.model.dead_letter import DeadLetter
from tailrace.stores.memory import MemoryDeadLetters
from tests.contract.stores import letter
from tests.unit.engine.changes import change, number, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Destination, Watching, running, supervisor_of

BY = "ann"
ANY = LetterBody()
LETTERS = [letter(n, key=7) for n in (1, 2, 3)]


class Alone(Destination):
    """Notes the most calls that run at once; refuses ``refused`` events."""

    most = 0
    _now = 0
    refused: frozenset[int] = frozenset()

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await anyio.sleep(0.002)
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
    return one, Control(supervisor_of(one), one.runtime), store


async def test_letters_are_replayed_in_order_through_the_open_handler_beside_the_scope() -> None:
    """A handler that gets one call at a time gets one at a time. New letters of the document come,
    too: they are delivered after those that waited."""
    audit = Alone()
    one, control, store = followed(audit)
    async with running(control.supervisor):
        await until(lambda: bool(audit.handled))
        one.driver.oplog.append(change(50, key=7))
        done = await control.replay_letter(LETTERS[1].id, ANY, BY)
        await until(lambda: len(audit.handled) >= 34)
        await one.until_state(WatcherState.CAUGHT_UP)
        if await store.letters():
            done = await control.replay_letter((await store.letters())[0].id, ANY, BY)
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
        done = await control.replay_letter(LETTERS[0].id, ANY, BY)
        assert done.message == "replayed 1 dead letter; 1 failed again, 2 left"
        outcomes = [each["outcome"] for each in done.details["letters"]]
        assert outcomes == ["replayed", "failed: ValueError: still broken"]
        found = await control.dead_letters(LettersQuery(scope="orders", key="7"))
        assert [each["id"] for each in found["letters"]] == [each.id for each in LETTERS[1:]]
        assert (await control.dead_letters(LettersQuery(handler="audit", key="7")))["count"] == 2
        assert (await control.dead_letters(LettersQuery(handler="odd", key="7")))["count"] == 0
        assert (await control.dead_letters(LettersQuery(key="8")))["count"] == 0
        gone = await control.discard_letter(LETTERS[1].id, ANY, BY)
        assert gone.message == "discarded 1 dead letter"
        assert (await control.replay_letter(LETTERS[2].id, ANY, BY)).details["left"] == 0
    assert await store.letters() == []


async def test_a_replay_that_takes_long_names_the_letter_to_go_on_with() -> None:
    audit = Alone()
    _, control, store = followed(audit)
    async with running(control.supervisor):
        await until(lambda: bool(audit.handled))
        await control.dead_letters(LettersQuery())
        assert control.letters is not None
        control.letters.most_seconds = 0
        next, asked = LETTERS[0].id, 0
        while next:
            details = (await control.replay_letter(next, ANY, BY)).details
            next, asked = details.get("next"), asked + 1
    assert asked == 3
    assert await store.letters() == []


async def test_a_second_replay_at_once_is_refused() -> None:
    audit = Alone()
    audit.held = {1}
    _, control, store = followed(audit)
    async with running(control.supervisor), anyio.create_task_group() as tasks:
        await until(lambda: bool(audit.handled))
        tasks.start_soon(control.replay_letter, LETTERS[0].id, ANY, BY)
        await until(lambda: 1 in audit.begun)
        for call in (control.replay_letter, control.discard_letter):
            with pytest.raises(ActionRefused, match="being replayed or discarded") as refused:
                await call(LETTERS[0].id, ANY, BY)
            assert refused.value.status == 409
        audit.held = set()
    assert await store.letters() == []


@pytest.mark.parametrize(
    ("case", "status", "message"),
    [
        ("unknown", 404, "is not waiting"),
        ("standby", 409, "is followed by two, and not by this process: ask there"),
        ("starting", 409, "is starting: ask again"),
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

        async def failing(*_: object) -> Sequence[DeadLetter]:
            raise DeadLetterError("the disk is full")

        store.letters = failing  # type: ignore[method-assign]
    with pytest.raises(ActionRefused, match=message) as refused:
        await control.replay_letter("odd" if case == "unknown" else waiting.id, ANY, BY)
    assert refused.value.status == status
    assert await MemoryDeadLetters.letters(store)


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
                await control.replay_letter(LETTERS[0].id, ANY, BY)
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
                await control.replay_letter(LETTERS[0].id, ANY, BY)
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
        assert "was restarted, or changed by a reload: ask again" in refusals[0]
        assert refusals[0].startswith(f"replayed {'1 dead letter' if ends else '0 dead letters'}")
    assert len(await store.letters()) == (2 if ends else 3)


async def test_before_the_start_nothing_is_known_of_letters() -> None:
    with pytest.raises(ActionRefused, match="the service is starting"):
        await Control(Supervisor(300)).dead_letters(LettersQuery())
