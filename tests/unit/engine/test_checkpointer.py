"""When the watermark is saved, and with which content."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import anyio
import pytest

from tailrace.engine import checkpointer, handler_run
from tailrace.engine.checkpoint_claim import CheckpointClaim
from tailrace.engine.checkpointer import Checkpointer
from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.ports import RunIdentity
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.position.watermarks import Watermarks
from tailrace.errors import CheckpointCorrupt, CheckpointError, CheckpointFenced
from tailrace.model import Checkpoint, Position, PositionKind, ResumeToken
from tailrace.model.subscription import Subscription
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
    """A checkpointer on watermarks that move when told to: of ``audit``, and of others."""

    def __init__(
        self,
        *others: str,
        start: Position = NOTHING,
        fingerprint: str = "c0ffee",
        sequence: int = 0,
    ) -> None:
        self.store = ScriptedStore()
        self.watching = Watching(ScriptedDriver(), store=self.store, checkpoint_seconds=0)
        watcher = self.watching.watcher
        self.claim = CheckpointClaim("orders", ["audit", *others], epoch=OWNER.epoch)
        self.claim.sequence = sequence
        watermarks = Watermarks(start.cluster_time, lambda freed: None)
        self.handlers: list[HandlerRun] = []
        for name in self.claim.handlers:
            line = watermarks.each[name] = Watermark(start)
            known = Subscription(start, fingerprint)
            run = HandlerRun(name, line, known, start, joining=False)
            run.fingerprint = fingerprint
            self.handlers.append(run)
        self.line = watermarks.each["audit"]
        self.checkpointer = Checkpointer(
            watcher.plan,
            self.watching.runtime,
            OWNER,
            self.claim,
            self.handlers,
            watermarks,
            watcher.status,
            Interrupt(),
        )

    def move(self, n: int, *names: str) -> None:
        """Everything is handled up to ``n``, by these handlers (without any, by ``audit``)."""
        for each in self.handlers:
            if each.name in (names or ("audit",)):
                admit(each.watermark, batch([], token(n)))

    @property
    def saved(self) -> dict[str, ResumeToken | None]:
        """The tokens that are stored, by handler."""
        found = self.store.records["orders"].subscriptions
        return {name: each.position.high_water for name, each in found.items()}

    @property
    def sequences(self) -> list[int]:
        return [checkpoint.sequence for checkpoint in self.store.saved]


async def test_a_checkpoint_holds_the_watermark_and_its_owner() -> None:
    saving = Saving(sequence=7)
    (place,) = admit(saving.line, batch([change(1), invalidate(2)], token(3)))
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
            started=time(2),
        ),
        cluster="rs0/abc",
        fingerprint="c0ffee",
        epoch=3,
        sequence=8,
        saved_at=saved.saved_at,
        handlers=("audit",),
    )


async def test_no_save_that_waits_for_another_one_sets_a_last_position_back() -> None:
    saving, gate = Saving(), anyio.Event()
    save = saving.store.save

    async def held(checkpoint: Checkpoint) -> None:
        await gate.wait()
        await save(checkpoint)

    saving.store.save = held  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        for n in (1, 2):
            saving.move(n)
            tasks.start_soon(saving.checkpointer.save)
            await anyio.wait_all_tasks_blocked()
        saving.move(3)
        tasks.start_soon(saving.checkpointer.save_last, saving.handlers)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    reached = [checkpoint.position.high_water for checkpoint in saving.store.saved]
    assert reached == [token(1), token(3)]
    assert saving.saved == {"audit": token(3)}


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
    assert await saving.checkpointer.save_last(saving.handlers) is not None
    assert degraded() == []
    observed.begin()
    assert degraded() == []
    now[0] = 20.0
    assert "since 1970-01-01T00:00:02+00:00: the store does not answer" in degraded()[0]
    await saving.checkpointer.save()
    assert degraded() == []


async def test_while_a_place_takes_long_the_position_inside_it_is_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Never one before it: the next regular save must not go back to the place's beginning."""
    saving = Saving()
    (audit,) = saving.handlers
    audit.lane = cast(Any, "a lane that has handled event 2")
    inside = lambda line, lane: replace(line.position, high_water=token(2))  # noqa: E731
    monkeypatch.setattr(handler_run, "reached_position", inside)
    saving.move(1)
    await saving.checkpointer.save()
    await saving.checkpointer.save()
    await saving.checkpointer.save()
    assert [checkpoint.position.high_water for checkpoint in saving.store.saved] == [
        token(1),
        token(2),
    ]
    saving.move(3)
    await saving.checkpointer.save()
    assert saving.store.saved[-1].position.high_water == token(3)


async def test_one_write_has_the_positions_of_all_handlers_that_have_moved() -> None:
    saving = Saving("lake", "table")
    saving.move(3, "audit", "lake")
    await saving.checkpointer.save()
    assert saving.saved == {"audit": token(3), "lake": token(3)}
    saving.move(5, "lake", "table")
    await saving.checkpointer.save()
    assert saving.saved == {"audit": token(3), "lake": token(5), "table": token(5)}
    await saving.checkpointer.save()
    assert saving.sequences == [1, 2]


async def test_a_handler_that_has_not_joined_yet_is_saved_by_the_stream_that_it_has() -> None:
    saving = Saving("lake")
    saving.handlers[1].joining = True
    saving.move(3, "audit", "lake")
    await saving.checkpointer.save()
    assert await saving.checkpointer.save_last(saving.handlers) is None
    assert saving.saved == {"audit": token(3)}


async def test_the_end_of_one_handlers_part_saves_no_other_one() -> None:
    saving = Saving("lake")
    saving.move(3, "audit", "lake")
    assert await saving.checkpointer.save_last(saving.handlers[1:]) is None
    assert saving.saved == {"lake": token(3)}


async def test_a_start_position_is_saved_only_if_that_is_asked_for() -> None:
    """Nothing has confirmed it: without a token or a time it would be no position at all."""
    for start in (NOTHING, Position(PositionKind.EVENT, token(1), token(1), time(1))):
        saving = Saving(start=start)
        saving.handlers[0].stored = None
        await saving.checkpointer.save()
        assert await saving.checkpointer.save_last(saving.handlers) is None
        assert saving.store.saved == []
    await saving.checkpointer.save(first=True)
    assert saving.saved == {"audit": token(1)}


async def test_a_token_that_has_not_moved_keeps_the_pipeline_to_which_it_belongs() -> None:
    """With another one the server may refuse it; its time helps then."""
    start = Position(PositionKind.EVENT, token(1), token(1), time(1))
    saving = Saving(start=start, fingerprint="old")
    saving.handlers[0].stored = None
    await saving.checkpointer.save(first=True)
    assert saving.store.records["orders"].fingerprint == "old"
    saving.move(2)
    await saving.checkpointer.save()
    assert saving.store.records["orders"].fingerprint == "c0ffee"


async def test_a_save_of_a_handler_ends_its_halt_and_no_other_ones() -> None:
    saving = Saving("lake")
    saving.move(3, "audit", "lake")
    await saving.checkpointer.save()
    await saving.claim.note_halt(saving.store, ["audit", "lake"], "no such table")
    saving.move(5, "lake")
    await saving.checkpointer.save()
    halted = {n: each.halted for n, each in saving.store.records["orders"].subscriptions.items()}
    assert halted == {"audit": "no such table", "lake": ""}


async def test_now_and_then_a_position_is_kept_to_go_back_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saving = Saving("lake")
    for n in (1, 2):
        saving.move(n, "audit", "lake")
        await saving.checkpointer.save()
    assert len(await saving.watching.runtime.desired_states.positions("orders")) == 1
    monkeypatch.setattr(checkpointer, "NOTE_SECONDS", 0.0)
    saving.move(3)
    await saving.checkpointer.save()
    last = (await saving.watching.runtime.desired_states.positions("orders"))[0]
    tokens = {name: each.position.high_water for name, each in last.subscriptions.items()}
    assert tokens == {"audit": token(3), "lake": token(2)}
