"""The store with a span for each save of positions."""

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.engine.ports import CheckpointStore
from tailrace.model import Checkpoint
from tailrace.model.gap import Gap
from tailrace.telemetry.spans import SpanSeries


@dataclass(frozen=True, slots=True)
class TracedStore:
    """Implements ``CheckpointStore``."""

    store: CheckpointStore
    scope: str
    saves: SpanSeries

    async def save(self, checkpoint: Checkpoint) -> None:
        attributes = {"tailrace.scope": self.scope, "tailrace.purpose": "save"}
        with self.saves.current(f"save {self.scope}", attributes):
            await self.store.save(checkpoint)

    async def load(self, scope: str) -> Checkpoint | None:
        return await self.store.load(scope)

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        return await self.store.claim(scope, epoch)

    async def list(self) -> Sequence[Checkpoint]:
        return await self.store.list()

    async def reset(self, scope: str) -> bool:
        return await self.store.reset(scope)

    async def record_gap(self, gap: Gap) -> None:
        await self.store.record_gap(gap)

    async def gaps(self, scope: str) -> Sequence[Gap]:
        return await self.store.gaps(scope)
