"""This process's claim on a scope's checkpoint: its epoch, and the sequence of its saves."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointFenced
from tailrace.model import Checkpoint


@dataclass
class Ownership:
    """One scope's, for as long as its watcher lives."""

    scope: str
    epoch: int = 0
    sequence: int = 0
    """The highest one that a save was tried with, whatever became of it."""

    async def load(self, store: CheckpointStore) -> Checkpoint | None:
        """The scope's checkpoint; the first load claims it by a new epoch.

        Raises :class:`CheckpointFenced` where somebody else has saved since.
        """
        found = await store.load(self.scope)
        stored = found.order if found else (0, 0)
        if not self.epoch:
            found = await self._claim(store, found)
        elif stored > (self.epoch, self.sequence):
            # Not ours: a save of which we never heard again has a sequence that was counted.
            raise CheckpointFenced(
                f"scope {self.scope!r}: the store holds epoch {stored[0]}, sequence {stored[1]}, "
                f"newer than this process's {self.epoch}, {self.sequence}: another process "
                "follows the scope now, or an operator has set or reset its position. Restart "
                "this scope to follow from there"
            )
        return None if found is not None and found.is_reset else found

    async def _claim(self, store: CheckpointStore, found: Checkpoint | None) -> Checkpoint:
        """Stores what was found with the next epoch, before anything is read.

        Of two processes that start at once, one claims the epoch; the other is fenced.
        """
        epoch = found.epoch + 1 if found is not None else 1
        before = found or Checkpoint.nowhere(self.scope)
        claimed = replace(before, epoch=epoch, sequence=0, saved_at=datetime.now(UTC))
        await store.save(claimed)
        self.epoch = epoch
        return claimed

    def next_sequence(self) -> int:
        """For one more attempt: one that failed may have been stored all the same."""
        self.sequence += 1
        return self.sequence
