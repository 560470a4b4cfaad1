"""Saves a scope's watermark at every interval and when its run ends."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine.held_lease import HeldLease
from tailrace.engine.plan.scope_plan import Runtime, ScopePlan
from tailrace.engine.ports import CheckpointStore, RunIdentity
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.status.lag import later
from tailrace.engine.status.status import Status
from tailrace.errors import CheckpointCorrupt, CheckpointError, CheckpointFenced, describe
from tailrace.model import Checkpoint, Position, SnapshotProgress
from tailrace.model.snapshot import SnapshotState
from tailrace.stream import Interrupt

SAVE_SECONDS = 5.0
"""The time limit of a save after its run was told to end."""
NOTE_SECONDS = 15.0
"""The least time between two positions that are noted as former ones."""


@dataclass
class CheckpointClaim:
    """This process's claim on a scope's checkpoint; it lasts as long as the scope's watcher."""

    scope: str
    lease: HeldLease | None = None
    epoch: int = 0
    sequence: int = 0
    """The highest sequence of any attempted save, successful or not."""
    obeyed: int = 0
    """The number of the last order whose position the checkpoint has taken."""
    saved: Checkpoint | None = None
    """The last one that this process has saved."""
    began: Timestamp | None = None
    """The server's time when the scope was seen to have no position."""

    def next(
        self,
        identity: RunIdentity,
        position: Position,
        *,
        fingerprint: str = "",
        obeyed: int | None = None,
    ) -> Checkpoint:
        """The checkpoint to save next, by default of the run's own ``fingerprint``."""
        # Counted for each attempt: a failed attempt may have been stored all the same.
        self.sequence += 1
        return Checkpoint(
            scope=identity.scope,
            position=position,
            cluster=identity.cluster,
            fingerprint=fingerprint or identity.fingerprint,
            epoch=identity.epoch,
            sequence=self.sequence,
            saved_at=datetime.now(UTC),
            obeyed=self.obeyed if obeyed is None else obeyed,
        )

    async def save(self, store: CheckpointStore, checkpoint: Checkpoint) -> None:
        """Saves it, if the lease is still held. Raises :class:`CheckpointError`."""
        if self.lease is not None:
            self.lease.require()
        await store.save(checkpoint)

    async def load(self, store: CheckpointStore) -> Checkpoint | None:
        """The scope's checkpoint. The first load claims it with a new epoch: the lease's, if any.

        Raises :class:`CheckpointFenced` if somebody else has saved since.
        """
        if self.lease is not None:
            self.lease.require()
            if not self.epoch:
                claimed = await store.claim(self.scope, self.lease.epoch)
                self.epoch, self.obeyed = claimed.epoch, claimed.obeyed
                return None if claimed.is_reset else claimed
        found = await store.load(self.scope)
        stored = found.order if found else (0, 0)
        if not self.epoch:
            # If two processes start at once, one claims the next epoch and the other is fenced.
            before = found or Checkpoint.nowhere(self.scope)
            now = datetime.now(UTC)
            found = replace(before, epoch=before.epoch + 1, sequence=0, saved_at=now)
            await store.save(found)
            self.epoch = found.epoch
        elif stored > (self.epoch, self.sequence):
            # Not ours: even a save whose outcome we never learned has a sequence that we counted.
            raise CheckpointFenced(
                f"scope {self.scope!r}: the store holds epoch {stored[0]}, sequence {stored[1]}, "
                f"newer than this process's {self.epoch}, {self.sequence}: another process "
                "follows the scope now, or an operator has set or reset its position. "
                f"'tailrace scopes restart {self.scope}' follows from there"
            )
        elif self.saved is not None and found is not None and stored < self.saved.order:
            # A store beside the source goes back with it: only ours tells what handlers have.
            log = structlog.get_logger().bind(scope=self.scope)
            log.warning("checkpoint.went_back", stored=stored, saved=self.saved.order)
            found = self.saved
        self.obeyed = found.obeyed if found is not None else 0
        return None if found is not None and found.is_reset else found


def as_former(checkpoint: Checkpoint) -> Checkpoint:
    """Only the position itself, which is small."""
    position = replace(checkpoint.position, sink_digests={}, beyond={}, snapshot=None)
    return replace(checkpoint, position=position)


@dataclass(slots=True)
class Checkpointer:
    """Saves the positions of one claim, each newer than the last. The store has ``stored``."""

    plan: ScopePlan
    runtime: Runtime
    identity: RunIdentity
    claim: CheckpointClaim
    watermark: Watermark
    status: Status
    stored: Position | None
    reached: Callable[[], Position]
    """What is handled, to the single event; asked when the watermark has not moved."""
    _first: Position = field(init=False)
    _seen: Position | None = None
    _saving: anyio.Lock = field(default_factory=anyio.Lock)
    _noted: float = -NOTE_SECONDS
    """When a position was last noted, by the event loop's clock."""

    def __post_init__(self) -> None:
        self._first = self.watermark.position

    async def run(self, until: Interrupt) -> None:
        """At each interval saves the watermark if it has moved, until the last save is due.

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
            except (CheckpointFenced, CheckpointCorrupt):
                raise
            except CheckpointError as error:
                failures += 1
                message = describe(error)
                self.status.errors.note(message)
                log = structlog.get_logger().bind(scope=self.identity.scope)
                log.warning("checkpoint.save_failed", error=message, failures=failures)

    def _latest(self) -> Position:
        """What is handled: by whole places, as long as they are finished one after another."""
        before, self._seen = self._seen, self.watermark.position
        return self._seen if self._seen is not before else self.reached()

    async def save_last(self, position: Position) -> CheckpointError | None:
        """Saves what is handled when the run ends, even in a cancelled task; returns its error."""
        error = None
        with anyio.move_on_after(SAVE_SECONDS, shield=True) as bounded:
            self.status.unsaved = ""
            try:
                await self.save(position)
            except CheckpointError as failure:
                error, self.status.unsaved = failure, describe(failure)
        if bounded.cancelled_caught:
            self.status.unsaved = "the store did not answer in time"
        if self.status.unsaved:
            log = structlog.get_logger().bind(scope=self.identity.scope)
            log.warning("checkpoint.not_saved", error=self.status.unsaved)
        self.status.saving.clear()
        return error

    async def save(self, position: Position | None = None, *, first: bool = False) -> None:
        """Saves the watermark (or the ``position``), unless that is what was saved last.

        The start position, which nothing has confirmed yet, is saved only with ``first``. Raises
        :class:`CheckpointError`; then the position stays unsaved.
        """
        async with self._saving:
            handled_time = self.watermark.handled_time
            position = self._latest() if position is None else position
            if position == self.stored:
                self.status.committed(handled_time)
                return
            if position is self._first and not first:
                return
            identity = self.identity
            checkpoint = self.claim.next(identity, position)
            self.status.saving.begin()
            try:
                await self.claim.save(self.runtime.store, checkpoint)
            except CheckpointError as error:
                self.status.saving.fail(describe(error))
                self.runtime.metrics.saves.labels(identity.scope, "error").inc()
                raise
            self.claim.saved = checkpoint
            self._note_end(position.snapshot)
            self.stored = position
            self.status.saving.clear()
            self.runtime.metrics.saves.labels(identity.scope, "ok").inc()
            self.status.checkpoint = checkpoint
            self.status.committed(later(position.cluster_time, handled_time))
            await self._note(checkpoint)

    def _note_end(self, snapshot: SnapshotProgress | None) -> None:
        """Logs that a snapshot is done: its rows are handled, and that is stored."""
        before = (self.stored or self._first).snapshot
        if snapshot is None or snapshot.state is not SnapshotState.DONE or before == snapshot:
            return
        if before is None or before.id != snapshot.id or not before.over:
            documents = sum(each.documents for each in snapshot.ranges.values())
            log = structlog.get_logger().bind(scope=self.identity.scope)
            log.info("snapshot.done", snapshot=snapshot.id, documents=documents)

    async def _note(self, checkpoint: Checkpoint) -> None:
        """Now and then keeps a position, so that an operator can go back to it."""
        now = anyio.current_time()
        if now - self._noted < NOTE_SECONDS:
            return
        self._noted = now
        try:
            await self.runtime.orders.note(as_former(checkpoint))
        except CheckpointError as error:
            log = structlog.get_logger().bind(scope=self.identity.scope)
            log.debug("position.not_noted", error=describe(error))
