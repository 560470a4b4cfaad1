"""Positions in a dictionary: for tests, and for ``store: memory``, which forgets at exit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self

from tailrace.checkpoints.record import fenced
from tailrace.model import Checkpoint
from tailrace.model.gap import Gap


class MemoryStore:
    """A :class:`tailrace.engine.ports.CheckpointStore` as durable as the process."""

    def __init__(self, records: dict[str, Checkpoint], gaps: set[Gap] | None = None) -> None:
        self._records = records
        self._gaps = set() if gaps is None else gaps

    @classmethod
    @asynccontextmanager
    async def open(
        cls, records: dict[str, Checkpoint] | None = None, gaps: set[Gap] | None = None
    ) -> AsyncIterator[Self]:
        """Opens a store; those that are given the same ``records`` and ``gaps`` share them."""
        yield cls({} if records is None else records, gaps)

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self._records)} scopes>"

    async def load(self, scope: str) -> Checkpoint | None:
        """The scope's checkpoint, or ``None``."""
        return self._records.get(scope)

    async def save(self, checkpoint: Checkpoint) -> None:
        """Keeps it; raises ``CheckpointFenced`` unless it is newer than what is there."""
        stored = self._records.get(checkpoint.scope)
        if stored is not None and checkpoint.order <= stored.order:
            raise fenced(checkpoint, stored.order, where=f"memory, scope {checkpoint.scope!r}")
        self._records[checkpoint.scope] = checkpoint

    async def list(self) -> Sequence[Checkpoint]:
        """Every checkpoint, by scope name."""
        return [self._records[scope] for scope in sorted(self._records)]

    async def reset(self, scope: str) -> bool:
        """Forgets the scope's checkpoint, not its gaps; says whether there was one."""
        return self._records.pop(scope, None) is not None

    async def record_gap(self, gap: Gap) -> None:
        """Keeps it, once."""
        self._gaps.add(gap)

    async def gaps(self, scope: str) -> Sequence[Gap]:
        """The scope's gaps, oldest first."""
        found = (gap for gap in self._gaps if gap.scope == scope)
        return sorted(found, key=lambda gap: gap.order)
