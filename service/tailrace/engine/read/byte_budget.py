"""How far readers may be ahead of the handlers: one reply, within the process' byte budget.

Half of the budget is divided among the scopes, and none lends its part: a scope whose handlers
stall does not keep the others from reading. The other half is common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from tailrace.engine.handle.lane import Lane
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.status import Status, WatcherState
from tailrace.stream import Interrupt

_LARGE_REPLY_BYTES = 24 * 1024 * 1024
_PATIENCE_SECONDS = 1.0
"""A wait that lasts longer shows as ``paused``: then it is not the server that is silent."""


class ByteBudget:
    """Counts raw bytes in flight, of ``shares`` scopes.

    What goes beyond a share's own part waits for the common one, in the order in which it came. A
    share that holds nothing is always let in, however large the reply: it is in memory already.
    So only replies larger than their share's part take more than ``limit``, one of each scope.
    """

    def __init__(self, limit: int, shares: int = 1) -> None:
        self.limit = limit
        self.used = 0
        self._own = limit // (2 * shares)
        self._common = limit - shares * self._own
        self._lent = 0
        self._waiting: dict[anyio.Event, tuple[Share, int]] = {}

    def share(self) -> Share:
        """A scope's part, of which nothing is used yet."""
        return Share(self)

    def _has_room(self, share: Share, size: int, *, first: bool) -> bool:
        """Whether the share may have so much more; ``first``: nobody waits for the common part."""
        held = share.held
        if not held or held + size <= self._own:
            return True
        return first and self._lent + self._beyond(held + size) - self._beyond(held) <= self._common

    def _take(self, share: Share, size: int) -> None:
        """Notes ``size`` bytes more, or, where it is negative, less."""
        self._lent += self._beyond(share.held + size) - self._beyond(share.held)
        share.held += size
        self.used += size

    def _beyond(self, size: int) -> int:
        return max(size - self._own, 0)

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
    """What one scope holds of the budget; for one reader."""

    def __init__(self, budget: ByteBudget) -> None:
        self.held = 0
        self._budget = budget

    def try_acquire(self, size: int) -> bool:
        """Takes ``size`` bytes if that needs no waiting."""
        budget = self._budget
        if not budget._has_room(self, size, first=not budget._waiting):
            return False
        budget._take(self, size)
        return True

    async def acquire(self, size: int) -> None:
        """Takes ``size`` bytes; for the common part it waits for everybody who came before."""
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


@dataclass
class ReadAhead:
    """The room that one run has. :meth:`moved` is the hook of its watermark.

    One reply is read ahead of the quickest handler; the budget bounds slower ones. After a large
    reply none is: it stays in memory while any of its events is needed.
    """

    share: Share
    status: Status
    interrupt: Interrupt
    _changed: anyio.Event = field(default_factory=anyio.Event)

    def moved(self, freed: int) -> None:
        """Handlers took something up or finished something: there may be room."""
        if freed:
            self.share.release(freed)
        self._changed.set()

    async def acquire(self, size: int, lanes: Sequence[Lane]) -> bool:
        """Waits for a reply's bytes of the budget; says whether it was not interrupted."""
        if self.share.try_acquire(size):
            return True
        self.status.enter(WatcherState.PAUSED)
        for lane in lanes:
            lane.flush()
        with self.interrupt.interrupts() as waiting:
            await self.share.acquire(size)
        return not waiting.cancelled_caught

    async def until_hungry(
        self, size: int, places: int, lanes: Sequence[Lane], watermark: Watermark
    ) -> None:
        """Waits while even the quickest handler has a whole reply, of so many places, to open."""
        ahead = max(places, 1) if size < _LARGE_REPLY_BYTES else 0
        if not ahead:
            for lane in lanes:
                lane.flush()
        while min(lane.backlog for lane in lanes) > ahead or (not ahead and watermark.size):
            with self.interrupt.interrupts(), anyio.move_on_after(_PATIENCE_SECONDS) as patience:
                await self._change()
            if self.interrupt.is_set:
                return
            if patience.cancelled_caught:
                self.status.enter(WatcherState.PAUSED)

    async def until_room(self, places: int, lanes: Sequence[Lane]) -> None:
        """Waits while even the quickest handler has more than so many places to open."""
        while lanes and min(lane.backlog for lane in lanes) > places:
            await self._change()

    async def _change(self) -> None:
        if self._changed.is_set():
            self._changed = anyio.Event()
        await self._changed.wait()
