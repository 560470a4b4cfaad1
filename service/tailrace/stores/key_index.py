"""Which document keys have letters: the part of a store that is asked for each event."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class KeyIndex:
    """The keys that have unresolved letters, by scope and handler, as last known here.

    One thread may change it while another asks whether a key is among :meth:`keys`.
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], set[bytes | None]] = {}

    def keys(self, scope: str, handler: str) -> Collection[bytes | None]:
        """The keys that have letters: to be asked and not to be kept."""
        return self._keys.get((scope, handler), frozenset())

    def note(self, scope: str, handler: str, key: bytes | None, *, held: bool) -> None:
        """A key has letters, or has none."""
        if held:
            self._keys.setdefault((scope, handler), set()).add(key)
        else:
            self._keys.get((scope, handler), set[bytes | None]()).discard(key)

    def replace(self, found: Iterable[tuple[str, str, bytes | None]]) -> None:
        """All keys there are, by scope and handler."""
        keys: dict[tuple[str, str], set[bytes | None]] = {}
        for scope, handler, key in found:
            keys.setdefault((scope, handler), set()).add(key)
        self._keys = keys
