"""Bounds how far readers may be ahead of handlers: one reply, within the process's byte budget.

Half of the budget is divided among the scopes, and no scope lends its part: so a scope whose
handlers stall does not keep the others from reading. All scopes share the other half.
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
"""A longer wait shows as ``waiting``: the handlers cause it, not a silent server."""


class ByteBudget:
    """Counts the raw bytes in flight of ``shares`` scopes.

    Requests beyond a share's own part wait for the common part, first come, first served. A share
    that holds nothing never waits, however large the reply: the reply is in memory already. So only
    replies larger than their share's own part can exceed ``limit``, at most one per scope.
    """

    def __init__(self, limit: int, shares: int = 1) -> None:
        self.limit = limit
        self.used = 0
        self._own = limit // (2 * shares)
        self._common = limit - shares * self._own
        self._lent = 0
        self._waiting: dict[anyio.Event, tuple[Share, int]] = {}

    def share(self) -> Share:
        """A new share for one scope, of which nothing is used yet."""
        return Share(self)

    def _has_room(self, share: Share, size: int, *, first: bool) -> bool:
        """Whether a share may have ``size`` more; ``first``: it is next for the common part."""
        held = share.held
        if not held or held + size <= self._own:
            return True
        return first and self._lent + self._beyond(held + size) - self._beyond(held) <= self._common

    def _take(self, share: Share, size: int) -> None:
        """Adds ``size`` bytes to the share, or removes them if negative."""
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
    """The part of the budget that one scope holds; used by one reader."""

    def __init__(self, budget: ByteBudget) -> None:
        self.held = 0
        self._budget = budget

    def try_acquire(self, size: int) -> bool:
        """Takes ``size`` bytes if they are available at once; returns whether it did."""
        budget = self._budget
        if not budget._has_room(self, size, first=not budget._waiting):
            return False
        budget._take(self, size)
        return True

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


@dataclass
class ReadAhead:
    """Bounds how far one run reads ahead. :meth:`moved` is the hook of its watermark.

    The run reads one reply ahead of the fastest handler; the budget bounds slower ones. After a
    large reply it reads none ahead: that reply stays in memory while any of its events is needed.
    """

    share: Share
    status: Status
    interrupt: Interrupt
    _changed: anyio.Event = field(default_factory=anyio.Event)

    def moved(self, freed: int) -> None:
        """Handlers opened or finished places, which freed this many bytes: there may be room."""
        if freed:
            self.share.release(freed)
        self._changed.set()

    async def acquire(self, size: int, lanes: Sequence[Lane]) -> bool:
        """Waits until the budget has ``size`` bytes for a reply; returns False on an interrupt."""
        if self.share.try_acquire(size):
            return True
        self.status.enter(WatcherState.WAITING)
        for lane in lanes:
            lane.flush()
        with self.interrupt.interrupts() as waiting:
            await self.share.acquire(size)
        return not waiting.cancelled_caught

    async def until_hungry(
        self, size: int, places: int, lanes: Sequence[Lane], watermark: Watermark
    ) -> None:
        """Waits while even the fastest handler has more than one reply of ``places`` to open.

        After a large reply: until nothing is in flight.
        """
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
                self.status.enter(WatcherState.WAITING)

    async def until_room(self, places: int, lanes: Sequence[Lane]) -> None:
        """Waits while even the fastest handler has more than ``places`` places to open."""
        while lanes and min(lane.backlog for lane in lanes) > places:
            await self._change()

    async def _change(self) -> None:
        if self._changed.is_set():
            self._changed = anyio.Event()
        await self._changed.wait()
