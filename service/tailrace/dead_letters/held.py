"""Which keys have letters: the part of a store that is asked for each event."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import NamedTuple

from tailrace.event.dead_letter import DeadLetter


class Identity(NamedTuple):
    """What a letter is known by."""

    scope: str
    handler: str
    letter: str

    @classmethod
    def of(cls, letter: DeadLetter) -> Identity:
        """That of a letter."""
        return cls(letter.scope, letter.handler, letter.id)


class Held:
    """The keys of each handler of each scope, and which unresolved letters they have.

    One thread may change it while another asks whether a key is among :meth:`keys`.
    """

    def __init__(self) -> None:
        self._letters: dict[tuple[str, str], dict[Hashable, set[str]]] = {}

    def keys(self, scope: str, handler: str) -> Collection[Hashable]:
        """The keys that have letters: a view, to be asked and not to be kept."""
        return self._letters.get((scope, handler), _NONE).keys()

    def add(self, identity: Identity, key: Hashable) -> None:
        """Notes a letter; noting it twice changes nothing."""
        keys = self._letters.setdefault((identity.scope, identity.handler), {})
        letters = keys.get(key)
        if letters is None:
            keys[key] = {identity.letter}  # complete before others can see it
        else:
            letters.add(identity.letter)

    def remove(self, identity: Identity, key: Hashable) -> None:
        """Forgets a letter, and its key with the last one."""
        letters = self._letters.get((identity.scope, identity.handler), _NONE).get(key)
        if letters is not None:
            letters.discard(identity.letter)
            if not letters:
                self.release(identity.scope, identity.handler, key)

    def release(self, scope: str, handler: str, key: Hashable) -> None:
        """Forgets a key, whatever letters it had."""
        self._letters.get((scope, handler), _NONE).pop(key, None)


_NONE: dict[Hashable, set[str]] = {}
