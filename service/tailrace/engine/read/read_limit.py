"""Bounds how far the reader of a run may be beyond its handlers: one reply, and the byte budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from tailrace.engine.handle.lane import Lane
from tailrace.engine.plan.byte_budget import Share
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.status.status import Status
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.stream import Interrupt

_LARGE_REPLY_BYTES = 24 * 1024 * 1024
_PATIENCE_SECONDS = 1.0
"""A longer wait shows as ``waiting``: the handlers cause it, not a silent server."""


@dataclass
class ReadLimit:
    """Bounds how far one run reads beyond its handlers. :meth:`moved` is its watermark's hook.

    The run reads one reply more than the fastest handler has opened; the budget bounds slower ones.
    After a large reply it reads none: that reply stays in memory while any of its events is needed.
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
        most = max(places, 1) if size < _LARGE_REPLY_BYTES else 0
        if not most:
            for lane in lanes:
                lane.flush()
        while min(lane.backlog for lane in lanes) > most or (not most and watermark.size):
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
