"""A comparison whose calls end: a destination that was paused, or is cut off, never answers."""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from tailrace.engine import (
    Comparison,
    HeldKeys,
    HeldRows,
    ReadDocuments,
    Row,
    Suspects,
    suspects_of,
)
from tailrace.event import ChangeEvent, Namespace
from tailrace.model.snapshot import DocumentId

CALL_SECONDS = 60.0
"""How long a call may take, of at most some thousand rows."""


@dataclass(frozen=True, slots=True)
class BoundedComparison:
    """Raises ``TimeoutError`` for a call that takes longer than this many seconds."""

    comparison: Comparison
    seconds: float = CALL_SECONDS

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row | None]:
        with anyio.fail_after(self.seconds):
            return await self.comparison.expected(documents)

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        with anyio.fail_after(self.seconds):
            return await self.comparison.stored(collection, keys)

    @property
    def suspects(self) -> Suspects | None:
        if (ask := suspects_of(self.comparison)) is None:
            return None

        async def bounded(collection: Namespace, read: ReadDocuments) -> Sequence[int]:
            with anyio.fail_after(self.seconds):
                return await ask(collection, read)

        return bounded

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        with anyio.fail_after(self.seconds):
            return await self.comparison.stored_keys(collection, after, most)
