"""Keeps the keys that have dead letters in memory, because every event asks for its key."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from anyio import Lock

from tailrace.model.dead_letter import DeadLetter, LetterHead
from tailrace.model.dead_letter import LetterQueue as Key

__all__ = ["IndexedLetters", "Key"]


class IndexedLetters(ABC):
    """The part of a :class:`tailrace.engine.ports.DeadLetterStore` that knows the held keys.

    Calls about a scope run one at a time: an older answer must not overwrite newer knowledge.
    """

    def __init__(self) -> None:
        self._held: defaultdict[tuple[str, str], set[bytes | None]] = defaultdict(set)
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)

    async def claim(self, scope: str, epoch: int) -> None:
        async with self._locks[scope]:
            await self._claim(scope, epoch)
            found = list(await self._keys(scope))
            for (of, _), keys in self._held.items():
                if of == scope:
                    keys.clear()
            for _, handler, key in found:
                self._held[scope, handler].add(key)

    async def add(self, letter: DeadLetter, epoch: int) -> None:
        async with self._locks[letter.scope]:
            # Before the insert: a failed or cancelled insert may have stored the dead letter.
            self._held[letter.scope, letter.handler].add(letter.key)
            await self._insert(letter, epoch)

    def held(self, scope: str, handler: str) -> Collection[bytes | None]:
        """Keys with unresolved dead letters, as last known here; always the same set object."""
        return self._held[scope, handler]

    async def holds(self, scope: str, handler: str, key: bytes | None) -> bool:
        async with self._locks[scope]:
            found = await self._find((scope, handler, key))
            keys = self._held[scope, handler]
            (keys.add if found else keys.discard)(key)
            return found

    async def letters(
        self,
        scope: str | None = None,
        handler: str | None = None,
        is_key: Callable[[bytes | None], bool] = lambda key: True,
    ) -> Sequence[DeadLetter]:
        letters, after = list[DeadLetter](), ""
        while page := await self.heads(scope, handler, after=after):
            for head in page:
                if is_key(head.key) and (letter := await self.read(head)) is not None:
                    letters.append(letter)
            after = page[-1].arrival
        return letters

    @abstractmethod
    async def heads(
        self,
        scope: str | None = None,
        handler: str | None = None,
        *,
        after: str = "",
        limit: int = 1000,
    ) -> Sequence[LetterHead]: ...

    @abstractmethod
    async def read(self, head: LetterHead) -> DeadLetter | None: ...

    @abstractmethod
    async def _claim(self, scope: str, epoch: int) -> None: ...

    @abstractmethod
    async def _insert(self, letter: DeadLetter, epoch: int) -> None: ...

    @abstractmethod
    async def _find(self, key: Key) -> bool: ...

    @abstractmethod
    async def _keys(self, scope: str) -> Iterable[Key]:
        """The key of each unresolved dead letter of a scope."""
