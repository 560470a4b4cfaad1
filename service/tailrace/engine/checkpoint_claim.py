"""This process's claim on a scope's checkpoint: the one writer of the record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine.held_lease import HeldLease
from tailrace.engine.ports import CheckpointStore, RunIdentity
from tailrace.errors import CheckpointFenced
from tailrace.model import Checkpoint, SnapshotProgress
from tailrace.model.subscription import Subscription


@dataclass
class CheckpointClaim:
    """The claim lasts as long as the scope's watcher. The scope's streams share it: each saves the
    subscriptions that it feeds. ``handlers``: the names of all of them."""

    scope: str
    handlers: Sequence[str] = ()
    lease: HeldLease | None = None
    epoch: int = 0
    sequence: int = 0
    """The highest sequence of any attempted save, successful or not."""
    saved: Checkpoint | None = None
    """The last one that this process has saved."""
    began: dict[str, Timestamp] = field(default_factory=dict)
    """By handler without a position, the server's time when that was seen."""
    came_after: dict[str, int] = field(default_factory=dict)
    """By handler without a position, the last generation that any handler had taken when that was
    seen first. It is stored, as the others take later ones."""
    unsaved: dict[str, Subscription] = field(default_factory=dict)
    """What handlers have reached, and the store has not confirmed: that stays true."""
    _latest: Checkpoint | None = None
    """What the store has, with what this process has tried to save since."""
    _writing: anyio.Lock = field(default_factory=anyio.Lock)

    def of(self, handler: str) -> Subscription | None:
        """How far a handler is, as it is stored; ``None`` if it has no position."""
        return self._latest.of(handler) if self._latest is not None else None

    @property
    def observed_generation(self) -> int:
        """The last generation whose position every handler has taken."""
        return min((self.observed_by(name) for name in self.handlers), default=0)

    def observed_by(self, handler: str) -> int:
        """The last generation whose position a handler has taken.

        One without a position has taken what was wanted before it came: another handler has, or an
        operator has reset the scope since. What others take later says nothing of it.
        """
        if (known := self.of(handler)) is not None:
            return known.observed_generation
        return self.came_after.get(handler, self._observed_by_any)

    @property
    def _observed_by_any(self) -> int:
        latest = self._latest or Checkpoint.nowhere(self.scope)
        stored = [each.observed_generation for each in latest.subscriptions.values()]
        return max([latest.observed_generation, *stored])

    def snapshot_of(self, handler: str) -> SnapshotProgress | None:
        """The snapshot that the handler has."""
        known = self.of(handler)
        return known.position.snapshot if known is not None else None

    async def save(
        self, store: CheckpointStore, identity: RunIdentity, changed: Mapping[str, Subscription]
    ) -> Checkpoint:
        """Saves these subscriptions beside the others, if the lease is still held.

        Raises :class:`CheckpointError`.
        """
        # Those replace what the store did not take before, also by an operator's move.
        replaced = {name: self.unsaved.get(name) for name in changed}
        async with self._writing:
            before = self._latest or Checkpoint.nowhere(self.scope)
            after = replace(
                before.with_subscriptions(changed, self.handlers), cluster=identity.cluster
            )
            saved = await self._write(store, after)
            for name, subscription in changed.items():
                if self.unsaved.get(name) in (subscription, replaced[name]):
                    self.unsaved.pop(name, None)
            return saved

    async def note_halt(
        self, store: CheckpointStore, handlers: Sequence[str], reason: str
    ) -> Checkpoint | None:
        """Saves why these handlers are halted, and what the store did not take of them before;
        ``None`` if the scope is not this process's."""
        async with self._writing:
            if not self.epoch:
                return None
            before = self._latest or Checkpoint.nowhere(self.scope)
            known = {name: self.unsaved.get(name) or before.of(name) for name in handlers}
            halted = {n: replace(s, halted=reason) for n, s in known.items() if s is not None}
            after = (
                before.with_subscriptions(halted, self.handlers)
                if halted
                else replace(before, halted=reason)
            )
            noted = await self._write(store, after)
            for name in handlers:
                self.unsaved.pop(name, None)
            return noted

    async def _write(self, store: CheckpointStore, checkpoint: Checkpoint) -> Checkpoint:
        # Counted for each attempt: a failed attempt may have been stored all the same.
        self.sequence += 1
        now = datetime.now(UTC)
        came_after = {n: at for n, at in self.came_after.items() if checkpoint.of(n) is None}
        checkpoint = replace(
            checkpoint,
            epoch=self.epoch,
            sequence=self.sequence,
            saved_at=now,
            came_after=came_after,
        )
        if self.lease is not None:
            self.lease.require()
        await store.save(checkpoint)
        self._latest = self.saved = checkpoint
        return checkpoint

    async def load(self, store: CheckpointStore) -> Checkpoint | None:
        """The scope's checkpoint. The first load claims it with a new epoch: the lease's, if any.

        Raises :class:`CheckpointFenced` if somebody else has saved since.
        """
        async with self._writing:
            checkpoint = await self._load(store)
            if checkpoint is not None and not (checkpoint.handlers or checkpoint.is_reset):
                names = [name for name in self.handlers if name not in checkpoint.damaged]
                checkpoint = replace(checkpoint, handlers=tuple(sorted(names)))
            if checkpoint is not None and self.unsaved and not checkpoint.is_reset:
                checkpoint = checkpoint.with_subscriptions(self.unsaved, self.handlers)
            self._latest = checkpoint
            noted = checkpoint.came_after if checkpoint is not None else {}
            for name in self.handlers:
                if self.of(name) is None:
                    self.came_after.setdefault(name, noted.get(name, self._observed_by_any))
            return None if checkpoint is not None and checkpoint.is_reset else checkpoint

    async def _load(self, store: CheckpointStore) -> Checkpoint | None:
        if self.lease is not None:
            self.lease.require()
            if not self.epoch:
                claimed = await store.claim(self.scope, self.lease.epoch)
                self.epoch = claimed.epoch
                return claimed
        checkpoint = await store.load(self.scope)
        stored = checkpoint.version if checkpoint else (0, 0)
        if not self.epoch:
            # If two processes start at once, one claims the next epoch and the other is fenced.
            before = checkpoint or Checkpoint.nowhere(self.scope)
            now = datetime.now(UTC)
            checkpoint = replace(before, epoch=before.epoch + 1, sequence=0, saved_at=now)
            await store.save(checkpoint)
            self.epoch = checkpoint.epoch
        elif stored > (self.epoch, self.sequence):
            # Not ours: even a save whose outcome we never learned has a sequence that we counted.
            raise CheckpointFenced(
                f"scope {self.scope!r}: the store holds epoch {stored[0]}, sequence {stored[1]}, "
                f"newer than this process's {self.epoch}, {self.sequence}: another process "
                "follows the scope now, or an operator has set or reset its position. "
                f"'tailrace scopes restart {self.scope}' follows from there"
            )
        elif self.saved is not None and checkpoint is not None and stored < self.saved.version:
            # A store beside the source goes back with it: only ours tells what handlers have.
            log = structlog.get_logger().bind(scope=self.scope)
            log.warning("checkpoint.went_back", stored=stored, saved=self.saved.version)
            checkpoint = self.saved
        return checkpoint


def as_former(checkpoint: Checkpoint) -> Checkpoint:
    """Only the positions themselves, which are small."""
    small = {
        name: replace(
            each,
            position=replace(
                each.position, stored="", handled=frozenset(), until=None, snapshot=None
            ),
        )
        for name, each in checkpoint.subscriptions.items()
    }
    return replace(checkpoint.with_subscriptions(small), came_after={}, replays={})
