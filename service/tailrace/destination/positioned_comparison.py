"""A comparison that a destination has opened, with its position as the engine knows positions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.destination.position import stored_position
from tailrace.engine import (
    Comparison,
    HeldKeys,
    HeldRows,
    ReadDocuments,
    Row,
    RunIdentity,
    Suspects,
    suspects_of,
)
from tailrace.event import ChangeEvent, Namespace
from tailrace.model.snapshot import DocumentId


@dataclass(frozen=True, slots=True)
class PositionedComparison:
    """Implements :class:`Comparison` for the engine. Raises :class:`InvalidPosition`, too."""

    comparison: Comparison
    identity: RunIdentity

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row | None]:
        return await self.comparison.expected(documents)

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        return self._positioned(await self.comparison.stored(collection, keys))

    @property
    def suspects(self) -> Suspects | None:
        if (ask := suspects_of(self.comparison)) is None:
            return None

        async def positioned(collection: Namespace, read: ReadDocuments) -> Sequence[int]:
            return await ask(collection, lambda held: read(self._positioned(held)))

        return positioned

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        return await self.comparison.stored_keys(collection, after, most)

    def _positioned(self, held: HeldRows) -> HeldRows:
        text = held.position_text
        position = None if text is None else stored_position(text, self.identity)
        return replace(held, position=position)
