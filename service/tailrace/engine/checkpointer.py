"""Saves the positions of a run's handlers at every interval and when the run ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio
import structlog

from tailrace.engine.checkpoint_claim import CheckpointClaim, as_former
from tailrace.engine.handle.isolation import cancelled_by_us
from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.plan.scope_plan import Runtime, ScopePlan
from tailrace.engine.ports import RunIdentity
from tailrace.engine.position.cluster_time import later
from tailrace.engine.position.watermarks import Watermarks
from tailrace.engine.status.status import Status
from tailrace.errors import CheckpointCorrupt, CheckpointError, CheckpointFenced, describe
from tailrace.model import Checkpoint, Position, SnapshotProgress
from tailrace.model.snapshot import SnapshotState
from tailrace.model.subscription import Subscription
from tailrace.stream import Interrupt

SAVE_SECONDS = 5.0
"""The time limit of a save after its run was told to end."""
AGAIN_SECONDS = 0.25
"""The time between two attempts at the last save of a process, as during an election."""
_FINAL = (CheckpointFenced, CheckpointCorrupt)
"""Errors of a save that no further attempt can change."""
NOTE_SECONDS = 15.0
"""The least time between two positions that are noted as former ones."""


@dataclass(slots=True)
class Checkpointer:
    """Saves for the ``handlers`` of one run, each position newer than the last.

    ``stop``: after it, no later run of this process saves what the last save did not.
    """

    plan: ScopePlan
    runtime: Runtime
    identity: RunIdentity
    claim: CheckpointClaim
    handlers: Sequence[HandlerRun]
    watermarks: Watermarks
    status: Status
    stop: Interrupt
    _saving: anyio.Lock = field(default_factory=anyio.Lock)
    _ended: str = ""
    """The id of the last snapshot whose end was logged."""
    _noted: float = -NOTE_SECONDS
    """When a position was last noted, by the event loop's clock."""

    async def run(self, until: Interrupt) -> None:
        """At each interval saves the watermarks if they have moved, until the last save is due.

        Tries again if the store is unavailable. Raises :class:`CheckpointFenced` and
        :class:`CheckpointCorrupt`.
        """
        failures = 0
        while True:
            wait = self.plan.backoff.delay(failures) if failures else self.plan.checkpoint_seconds
            await until.sleep(wait)
            if until.is_set:
                return
            try:
                with until.interrupts(SAVE_SECONDS):
                    await self.save()
                failures = 0
            except _FINAL:
                raise
            except CheckpointError as error:
                failures += 1
                message = describe(error)
                self.status.errors.note(message)
                log = structlog.get_logger().bind(scope=self.identity.scope)
                log.warning("checkpoint.save_failed", error=message, failures=failures)

    async def save_last(self, handlers: Sequence[HandlerRun]) -> CheckpointError | None:
        """Saves what these handlers have when their part ends, even in a cancelled task; returns
        its error.

        After a stop it tries again, unless the task is cancelled: its time is over then.
        """
        error, again = None, self.stop.is_set and not cancelled_by_us()
        with anyio.move_on_after(SAVE_SECONDS, shield=True) as bounded:
            self.status.unsaved = ""
            last = {each: each.final(len(handlers)) for each in handlers if not each.joining}
            last = {each: at for each, at in last.items() if each.is_confirmed(at)}
            self.claim.unsaved.update(self._changed(last))
            error = await self._save_finally(last)
            while again and error is not None and not isinstance(error, _FINAL):
                self.status.unsaved = describe(error)
                await anyio.sleep(AGAIN_SECONDS)
                error = await self._save_finally(last)
            self.status.unsaved = "" if error is None else describe(error)
        if bounded.cancelled_caught and error is None:
            self.status.unsaved = "the store did not answer in time"
        if self.status.unsaved:
            log = structlog.get_logger().bind(scope=self.identity.scope)
            log.warning("checkpoint.not_saved", error=self.status.unsaved)
        self.status.saving.clear()
        return error

    async def _save_finally(self, last: Mapping[HandlerRun, Position]) -> CheckpointError | None:
        """Saves these positions; returns the error."""
        try:
            async with self._saving:
                await self._save(last)
        except CheckpointError as error:
            return error
        return None

    async def save(self, *, first: bool = False) -> None:
        """Saves the watermarks, unless those are what was saved last.

        The start positions, which nothing has confirmed yet, are saved only with ``first``. Raises
        :class:`CheckpointError`; then the positions stay unsaved.
        """
        async with self._saving:  # only then is it known what is saved: a last position stays
            latest = {e: e.latest(first=first) for e in self.handlers if not e.joining}
            await self._save({each: at for each, at in latest.items() if at is not None})

    async def _save(self, positions: Mapping[HandlerRun, Position]) -> None:
        handled_time = self.watermarks.handled_time
        changed = self._changed(positions)
        self.claim.unsaved.update(changed)
        if not changed:
            self.status.committed(handled_time)
            return
        checkpoint = await self.saved(changed)
        before = {handler: handler.stored for handler in positions}
        for handler, at in positions.items():
            handler.stored = at
        for handler, at in positions.items():
            self._note_end(before[handler], at.snapshot)
        committed = later(checkpoint.position.cluster_time, handled_time)
        self.status.committed(committed)
        await self._note(checkpoint)

    def _changed(self, positions: Mapping[HandlerRun, Position]) -> dict[str, Subscription]:
        """The subscriptions whose positions the store does not have, by handler."""
        return {
            each.name: each.subscription_at(at, self.identity.fingerprint)
            for each, at in positions.items()
            if at != each.stored
        }

    async def saved(self, subscriptions: Mapping[str, Subscription]) -> Checkpoint:
        """Saves these subscriptions; returns the checkpoint."""
        self.status.saving.begin()
        saves = self.runtime.metrics.saves
        try:
            checkpoint = await self.claim.save(self.runtime.store, self.identity, subscriptions)
        except CheckpointError as error:
            self.status.saving.fail(describe(error))
            saves.labels(self.identity.scope, "error").inc()
            raise
        self.status.saving.clear()
        saves.labels(self.identity.scope, "ok").inc()
        self.status.checkpoint = checkpoint
        return checkpoint

    def _note_end(self, stored: Position | None, snapshot: SnapshotProgress | None) -> None:
        """Logs that a snapshot is done: its rows are handled by all, and that is stored."""
        before = stored.snapshot if stored is not None else None
        if snapshot is None or snapshot.state is not SnapshotState.DONE or before == snapshot:
            return
        if before is not None and before.id == snapshot.id and before.over:
            return
        of_all = [each.stored.snapshot for each in self.handlers if each.stored is not None]
        left = any(one and one.id == snapshot.id and not one.over for one in of_all)
        if not left and self._ended != snapshot.id:
            self._ended = snapshot.id
            log = structlog.get_logger().bind(scope=self.identity.scope)
            log.info("snapshot.done", snapshot=snapshot.id, documents=snapshot.documents)

    async def _note(self, checkpoint: Checkpoint) -> None:
        """Now and then keeps a position, so that an operator can go back to it."""
        now = anyio.current_time()
        if now - self._noted < NOTE_SECONDS:
            return
        self._noted = now
        try:
            await self.runtime.desired_states.note(as_former(checkpoint))
        except CheckpointError as error:
            log = structlog.get_logger().bind(scope=self.identity.scope)
            log.debug("position.not_noted", error=describe(error))
