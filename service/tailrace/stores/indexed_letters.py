"""Keeps the keys that have dead letters in memory, because every event asks for its key."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from anyio import Lock

from tailrace.model.dead_letter import DeadLetter

Key = tuple[str, str, bytes | None]
"""Scope, handler and key of a document."""


class IndexedLetters(ABC):
    """The part of a :class:`tailrace.engine.ports.DeadLetterStore` that knows the held keys.

    Calls run one at a time: an older answer must not overwrite newer knowledge.
    """

    def __init__(self) -> None:
        self._held: defaultdict[tuple[str, str], set[bytes | None]] = defaultdict(set)
        self._lock = Lock()

    async def claim(self, scope: str, epoch: int) -> None:
        async with self._lock:
            await self._claim(scope, epoch)
            found = list(await self._keys(None))
            for keys in self._held.values():
                keys.clear()
            for each, handler, key in found:
                self._held[each, handler].add(key)

    async def add(self, letter: DeadLetter, epoch: int) -> None:
        async with self._lock:
            # Before the insert: a failed or cancelled insert may have stored the letter.
            self._held[letter.scope, letter.handler].add(letter.key)
            await self._insert(letter, epoch)

    def held(self, scope: str, handler: str) -> Collection[bytes | None]:
        """Keys with unresolved letters, as last known here; always the same set object."""
        return self._held[scope, handler]

    async def holds(self, scope: str, handler: str, key: bytes | None) -> bool:
        async with self._lock:
            found = await self._find((scope, handler, key))
            keys = self._held[scope, handler]
            (keys.add if found else keys.discard)(key)
            return found

    async def letters_of(
        self, scope: str | None, is_key: Callable[[bytes | None], bool]
    ) -> Sequence[DeadLetter]:
        keys = sorted({key for key in await self._keys(scope) if is_key(key[2])}, key=_order)
        return [letter for key in keys for letter in await self._letters_of(key)]

    @abstractmethod
    async def _claim(self, scope: str, epoch: int) -> None: ...

    @abstractmethod
    async def _insert(self, letter: DeadLetter, epoch: int) -> None: ...

    @abstractmethod
    async def _find(self, key: Key) -> bool: ...

    @abstractmethod
    async def _keys(self, scope: str | None) -> Iterable[Key]:
        """The key of each unresolved letter, of one scope or of all."""

    @abstractmethod
    async def _letters_of(self, key: Key) -> Sequence[DeadLetter]:
        """The unresolved letters of a key, in the order of arrival."""


def _order(key: Key) -> tuple[str, str, bytes]:
    scope, handler, document = key
    return scope, handler, document or b""
