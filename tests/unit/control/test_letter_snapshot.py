"""A snapshot in place of dead letters, where a store fails before it is begun."""

from typing import Any

import anyio
import pytest

from tailrace.control.actions.snapshot import SNAPSHOT, SnapshotBody
from tailrace.control.control import Control
from tailrace.control.letter_snapshot import LetterSnapshot
from tailrace.control.outcome import ActionRefused
from tailrace.engine import WatcherState
from tailrace.engine.plan.row_source import KnownSnapshots
from tailrace.errors import CheckpointError, DeadLetterError
from tailrace.model import Scope
from tailrace.model.dead_letter import DeadLetter, LetterHead, LetterUnreadable
from tailrace.model.desired_state import DesiredState
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.snapshots import Snapshots
from tailrace.stores.memory import MemoryDeadLetters, MemoryDesiredStates
from tests.contract.stores import letter
from tests.unit.control.actions.test_snapshot import Gone
from tests.unit.control.controlling import ask, control_of
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Destination, Watching

LETTERS = [letter(n, key=n) for n in (1, 2)]


class Letters(MemoryDeadLetters):
    """``damaged``: the ids of letters that cannot be read; ``failing``: of those that stay."""

    damaged: Any = ()
    failing: Any = ()
    hanging: Any = ()

    async def read(self, head: LetterHead) -> DeadLetter | None:
        if head.id in self.damaged:
            raise LetterUnreadable("its record is damaged")
        return await super().read(head)

    async def resolve(self, letter: DeadLetter | LetterHead, how: Any) -> bool:
        if letter.id in self.failing:
            raise DeadLetterError("the disk is full")
        if letter.id in self.hanging:
            await anyio.sleep_forever()
        return await super().resolve(letter, how)


class States(MemoryDesiredStates):
    """Takes so many states."""

    takes = 9

    async def write(self, desired: DesiredState) -> bool:
        self.takes -= 1
        if self.takes < 0:
            raise CheckpointError("the disk is full")
        return await super().write(desired)


class Replaced:
    """The dead letters of a handler, which a snapshot of their documents takes the place of."""

    def __init__(self) -> None:
        self.store, self.states = Letters(*LETTERS), States()
        rows = Snapshots(Scope("orders", "shop", "orders"), Gone(), SnapshotOptions())
        handlers = Destination().routed()
        self.one = Watching(
            ScriptedDriver(), handlers, rows=rows, letters=self.store, states=self.states
        )
        rows.begin(KnownSnapshots(None))
        self.one.watcher.status.enter(WatcherState.CAUGHT_UP)
        self.told = list[str]()

    @property
    def control(self) -> Control:
        return control_of(self.one)

    async def begin(self) -> None:
        await self.one.watcher.scope.desired.load(self.states)
        parts = self.one.watcher, self.store, self.states, "ann", anyio.Lock()
        queues = [head.queue for head in await self.store.heads()]
        await LetterSnapshot(*parts).instead(queues, lambda _, what: self.told.append(what))

    async def is_paused(self) -> bool | None:
        desired = await self.states.load("orders")
        return None if desired is None or desired.snapshot is None else desired.snapshot.paused


async def test_a_letter_that_cannot_be_read_keeps_no_other_waiting() -> None:
    replaced = Replaced()
    replaced.store.damaged = {LETTERS[0].id}
    await replaced.begin()
    assert replaced.told == [
        "failed: its record is damaged",
        "discarded for a snapshot of its document",
    ]
    assert [each.id for each in await replaced.store.heads()] == [LETTERS[0].id]
    assert await replaced.is_paused() is False


async def test_documents_of_discarded_letters_come_if_others_cannot_be_discarded() -> None:
    """Else nothing has them: neither a dead letter, nor a snapshot that anybody resumes."""
    replaced = Replaced()
    replaced.store.failing = {LETTERS[1].id}
    with pytest.raises(DeadLetterError):
        await replaced.begin()
    assert replaced.told == ["discarded for a snapshot of its document"]
    assert await replaced.is_paused() is False


async def test_documents_of_discarded_letters_come_if_the_process_stops_meanwhile() -> None:
    replaced = Replaced()
    replaced.store.hanging = {LETTERS[1].id}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(replaced.begin)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert replaced.told == ["discarded for a snapshot of its document"]
    assert await replaced.is_paused() is False


async def test_a_snapshot_that_cannot_be_resumed_says_who_does_that() -> None:
    replaced = Replaced()
    replaced.states.takes = 1
    message = r"snapshot \w+ has the documents of 2 .* paused.*'tailrace snapshot resume orders'"
    with pytest.raises(ActionRefused, match=message) as refused:
        await replaced.begin()
    assert refused.value.status == 503
    assert await replaced.is_paused() is True
    replaced.states.takes = 9
    with pytest.raises(ActionRefused, match="is not over, but paused: resume it and wait"):
        await ask(replaced.control, SNAPSHOT, "orders", SnapshotBody())
