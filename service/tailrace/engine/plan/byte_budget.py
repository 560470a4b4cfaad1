"""The byte budget of a process: how many raw bytes of events may be in flight, by stream.

Half of the budget is divided among the streams that the scopes may have open, and none lends its
part: so a scope whose handlers stall does not keep the others from reading, nor does a handler that
catches up. All streams share the other half, and replays have that only.
"""

from __future__ import annotations

from weakref import WeakSet

import anyio


class ByteBudget:
    """Counts the raw bytes in flight of ``shares`` streams.

    Requests beyond a share's own part wait for the common part, first come, first served. A share
    that holds nothing never waits, however large the reply: the reply is in memory already. So only
    replies larger than their share's own part can exceed ``limit``, at most one per share.
    """

    def __init__(self, limit: int, shares: int = 1) -> None:
        self.limit = limit
        self.used = 0
        self._own = self._common = self._lent = 0
        self._shares = WeakSet[Share]()
        self._waiting: dict[anyio.Event, tuple[Share, int]] = {}

        self.divide(shares)

    def divide(self, shares: int, limit: int | None = None) -> None:
        """Divides the budget, or another one, among so many shares; what they hold stays theirs."""
        self.limit = self.limit if limit is None else limit
        self._own = self.limit // (2 * shares)
        self._common = self.limit - shares * self._own
        self._lent = sum(self._above_own(each, each.held) for each in self._shares)
        self._grant()

    def share(self, *, own: bool = True) -> Share:
        """A new share for one stream, of which nothing is used yet. ``own``: it has a part of its
        own beside the common one."""
        share = Share(self, own=own)
        self._shares.add(share)
        return share

    def _has_room(self, share: Share, size: int, *, first: bool) -> bool:
        """Whether a share may have ``size`` more; ``first``: it is next for the common part."""
        held = share.held
        more = self._above_own(share, held + size) - self._above_own(share, held)
        return not held or not more or (first and self._lent + more <= self._common)

    def _take(self, share: Share, size: int) -> None:
        """Adds ``size`` bytes to the share, or removes them if negative."""
        self._lent += self._above_own(share, share.held + size) - self._above_own(share, share.held)
        share.held += size
        self.used += size

    def _above_own(self, share: Share, size: int) -> int:
        return max(size - self._own, 0) if share.own else size

    def _grant(self) -> None:
        first = True
        for granted, (share, size) in list(self._waiting.items()):
            if self._has_room(share, size, first=first):
                del self._waiting[granted]
                self._take(share, size)
                granted.set()
            else:
                first = False


class Share:
    """The part of the budget that one stream holds; used by one reader."""

    def __init__(self, budget: ByteBudget, *, own: bool = True) -> None:
        self.own = own
        self.held = 0
        self._budget = budget

    def try_acquire(self, size: int) -> bool:
        """Takes ``size`` bytes if they are available at once; returns whether it did."""
        budget = self._budget
        if not budget._has_room(self, size, first=not budget._waiting):
            return False
        budget._take(self, size)
        return True

    def take(self, size: int) -> None:
        """Takes ``size`` bytes without waiting, although the budget may not have them."""
        self._budget._take(self, size)

    async def acquire(self, size: int) -> None:
        """Takes ``size`` bytes. For the common part it waits for all earlier requests."""
        if self.try_acquire(size):
            return
        granted = anyio.Event()
        self._budget._waiting[granted] = self, size
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self.release(size)
            else:
                del self._budget._waiting[granted]
                self._budget._grant()
            raise

    def release(self, size: int) -> None:
        """Gives bytes back."""
        self._budget._take(self, -size)
        self._budget._grant()
