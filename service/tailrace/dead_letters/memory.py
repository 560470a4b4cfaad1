"""Dead letters in a dictionary, for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Self

from tailrace.dead_letters.held import Identity
from tailrace.dead_letters.record import How
from tailrace.event.dead_letter import DeadLetter


class MemoryDeadLetters:
    """A :class:`tailrace.engine.ports.DeadLetterStore` as durable as the process."""

    def __init__(self, letters: dict[Identity, DeadLetter]) -> None:
        self._letters = letters

    @classmethod
    @asynccontextmanager
    async def open(cls, letters: dict[Identity, DeadLetter] | None = None) -> AsyncIterator[Self]:
        """Opens a store; those that are given the same ``letters`` share them."""
        yield cls({} if letters is None else letters)

    def __repr__(self) -> str:
        return f"<MemoryDeadLetters: {len(self._letters)} letters>"

    async def add(self, letter: DeadLetter) -> None:
        """Keeps it behind all others, once."""
        self._letters.setdefault(Identity.of(letter), letter)

    def held(self, scope: str, handler: str) -> Collection[Hashable]:
        """Keys that have unresolved letters."""
        return {letter.key for letter in self._matching(scope, handler)}

    async def holds(self, scope: str, handler: str, key: Hashable) -> bool:
        """Whether the key has unresolved letters."""
        return key in self.held(scope, handler)

    async def refresh(self) -> None:
        """Nothing is ever unknown here."""

    async def count(self) -> Mapping[tuple[str, str], int]:
        """How many unresolved letters there are by scope and handler."""
        return Counter((each.scope, each.handler) for each in self._letters)

    async def letters(
        self, scope: str | None = None, handler: str | None = None
    ) -> list[DeadLetter]:
        """Unresolved letters, in the order in which they came."""
        return self._matching(scope, handler)

    async def resolve(self, letter: DeadLetter, how: How) -> bool:
        """Forgets it; says whether it was there."""
        return self._letters.pop(Identity.of(letter), None) is not None

    def _matching(self, scope: str | None, handler: str | None) -> list[DeadLetter]:
        return [
            letter
            for letter in self._letters.values()
            if scope in (None, letter.scope) and handler in (None, letter.handler)
        ]
