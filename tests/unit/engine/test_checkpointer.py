"""When the watermark is saved, and with which content."""

from dataclasses import replace
from datetime import UTC, datetime

import anyio
import pytest

from tailrace.engine.checkpointer import CheckpointClaim, Checkpointer
from tailrace.engine.ports import RunIdentity
from tailrace.engine.position.watermark import Watermark
from tailrace.errors import CheckpointCorrupt, CheckpointError, CheckpointFenced
from tailrace.model import Checkpoint, Position, PositionKind
from tailrace.stream import Interrupt
from tests.unit.engine.changes import (
    NOTHING,
    admit,
    batch,
    change,
    invalidate,
    time,
    token,
    until,
)
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import Watching, supervisor_of

OWNER = RunIdentity("orders", "rs0/abc", "c0ffee", 3)


class Saving:
    """A checkpointer on a watermark that moves when told to."""

    def __init__(
        self,
        start: Position = NOTHING,
        sequence: int = 0,
        *stored: Checkpoint,
        seconds: float = 0,
    ) -> None:
        self.store = ScriptedStore(*stored)
        self.line = Watermark(start)
        self.watching = Watching(ScriptedDriver(), store=self.store, checkpoint_seconds=seconds)
        watcher = self.watching.watcher
        claim = CheckpointClaim("orders")
        claim.sequence = sequence
        self.reached: Position | None = None
        self.checkpointer = Checkpointer(
            watcher.plan,
            self.watching.runtime,
            OWNER,
            claim,
            self.line,
            watcher.status,
            start,
            lambda: self.reached or self.line.position,
        )

    def move(self, n: int) -> None:
        admit(self.line, batch([], token(n)), 1)

    @property
    def sequences(self) -> list[int]:
        return [checkpoint.sequence for checkpoint in self.store.saved]


async def test_a_checkpoint_holds_the_watermark_and_its_owner() -> None:
    saving = Saving(sequence=7)
    (place,) = admit(saving.line, batch([change(1), invalidate(2)], token(3)), 1)
    saving.line.finish(place)
    before = datetime.now(UTC)
    await saving.checkpointer.save()
    (saved,) = saving.store.saved
    assert before <= saved.saved_at <= datetime.now(UTC)
    assert saved == Checkpoint(
        scope="orders",
        position=Position(
            kind=PositionKind.INVALIDATE,
            event_token=token(2),
            high_water=token(3),
            cluster_time=time(2),
        ),
        cluster="rs0/abc",
        fingerprint="c0ffee",
        epoch=3,
        sequence=8,
        saved_at=saved.saved_at,
    )


async def test_an_unavailable_store_is_asked_again() -> None:
    """The run continues meanwhile; only the checkpoint gets older."""
    saving, end = Saving(), Interrupt()
    saving.store.failing = 3
    saving.move(1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(saving.checkpointer.run, end)
        await until(lambda: saving.store.saved)
        end.set()
    assert saving.sequences == [4]
    assert saving.watching.last_error == "the disk is full"
    counted = saving.watching.counted
    assert counted("checkpoint_saves_total", outcome="error") == 3
    assert counted("checkpoint_saves_total", outcome="ok") == 1


@pytest.mark.parametrize("error", [CheckpointFenced("another"), CheckpointCorrupt("torn")])
async def test_a_position_that_is_not_ours_to_save_ends_the_run(error: CheckpointError) -> None:
    saving = Saving()
    saving.store.error = error
    saving.store.failing = 1
    saving.move(1)
    with pytest.raises(type(error)):
        await saving.checkpointer.run(Interrupt())


async def test_a_save_that_failed_is_repeated_by_the_next_one() -> None:
    saving = Saving()
    saving.move(1)
    saving.store.failing = 2
    for _ in range(2):
        with pytest.raises(CheckpointError):
            await saving.checkpointer.save()
    await saving.checkpointer.save()
    assert [each.position.high_water for each in saving.store.attempts] == [token(1)] * 3


async def test_a_position_that_cannot_be_saved_degrades_the_service() -> None:
    """Until it can be, or the run has ended."""
    saving, now = Saving(), [1.0]
    observed = saving.watching.watcher.status.saving
    observed.clock = lambda: now[0]
    degraded = supervisor_of(saving.watching).degraded
    saving.move(1)
    saving.store.failing = 3
    with pytest.raises(CheckpointError):
        await saving.checkpointer.save()
    (reason,) = degraded()
    assert reason == (
        "scope orders: its position is not saved since 1970-01-01T00:00:01+00:00: the disk is "
        "full. Changes are handled meanwhile, and come again after a restart"
    )
    now[0] = 2.0
    with pytest.raises(CheckpointError):
        await saving.checkpointer.save()
    assert degraded() == [reason]
    assert await saving.checkpointer.save_last(saving.line.position) is not None
    assert degraded() == []
    observed.begin()
    assert degraded() == []
    now[0] = 20.0
    assert "since 1970-01-01T00:00:02+00:00: the store does not answer" in degraded()[0]
    await saving.checkpointer.save()
    assert degraded() == []


async def test_while_a_place_takes_long_the_position_inside_it_is_saved() -> None:
    """Never one before it: the next regular save must not go back to the place's beginning."""
    saving = Saving()
    saving.move(1)
    await saving.checkpointer.save()
    saving.reached = replace(saving.line.position, high_water=token(2))
    await saving.checkpointer.save()
    await saving.checkpointer.save()
    assert [checkpoint.position.high_water for checkpoint in saving.store.saved] == [
        token(1),
        token(2),
    ]
    saving.move(3)
    await saving.checkpointer.save()
    assert saving.store.saved[-1].position.high_water == token(3)
