"""A cache for results about the few values that a stream repeats."""

from collections.abc import Callable, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MOST = 4096


class Memo(dict[K, V]):
    """``memo[key]`` is ``make(key)``, at half the cost of ``lru_cache``; emptied when full."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        value = self._make(key)
        if len(self) >= _MOST:
            self.clear()
        self[key] = value
        return value
