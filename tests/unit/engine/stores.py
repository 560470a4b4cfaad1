"""Checkpoint stores that fail or wait as told by a test, based on the real one in memory."""

from tailrace.errors import CheckpointError
from tailrace.model import Checkpoint
from tailrace.stores.memory import MemoryCheckpoints


class ScriptedStore(MemoryCheckpoints):
    """The memory store, with failures.

    The next ``failing`` saves raise; the next ``lying`` ones are stored but raise (a lost answer).
    Claims, with which a process takes over the scope at its start, never fail.
    """

    def __init__(self, *stored: Checkpoint) -> None:
        self.records = {checkpoint.scope: checkpoint for checkpoint in stored}
        super().__init__(self.records)
        self.failing = 0
        self.error: CheckpointError = CheckpointError("the disk is full")
        self.lying = 0
        self.failing_loads: list[Exception] = []
        self.attempts: list[Checkpoint] = []
        self.saved: list[Checkpoint] = []

    async def load(self, scope: str) -> Checkpoint | None:
        if self.failing_loads:
            raise self.failing_loads.pop(0)
        return await super().load(scope)

    async def save(self, checkpoint: Checkpoint) -> None:
        if not checkpoint.sequence:  # a claim
            await super().save(checkpoint)
            return
        self.attempts.append(checkpoint)
        if self.failing:
            self.failing -= 1
            raise self.error
        await super().save(checkpoint)
        self.saved.append(checkpoint)
        if self.lying:
            self.lying -= 1
            raise CheckpointError("the answer was lost")
