"""One byte budget for the whole process: what has been read and not yet been handled."""

from __future__ import annotations

from collections import deque

import anyio


class ByteBudget:
    """Counts raw bytes in flight; readers wait in the order in which they came.

    A reply larger than the whole budget is let in alone: else it could never be handled.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, anyio.Event]] = deque()

    def try_acquire(self, size: int) -> bool:
        """Takes ``size`` bytes if that needs no waiting."""
        if self._waiting or not self._fits(size):
            return False
        self.used += size
        return True

    async def acquire(self, size: int) -> None:
        """Takes ``size`` bytes, waiting behind everybody who came before."""
        if self.try_acquire(size):
            return
        granted = anyio.Event()
        waiter = (size, granted)
        self._waiting.append(waiter)
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self.release(size)
            else:
                self._waiting.remove(waiter)
                self._grant()
            raise

    def release(self, size: int) -> None:
        """Gives bytes back."""
        self.used -= size
        self._grant()

    def _fits(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self.limit

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, granted = self._waiting.popleft()
            self.used += size
            granted.set()
