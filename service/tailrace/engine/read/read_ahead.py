"""How far a reader may be ahead of the handlers: one reply, within the byte budget.

One reply is read ahead of the quickest handler and no more; slower handlers are bounded by the
budget. After a large reply none is: it stays in memory while any of its events is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from tailrace.engine.handle.lane import Lane
from tailrace.engine.position.watermark import Watermark
from tailrace.engine.read.byte_budget import Share
from tailrace.engine.state import WatcherState
from tailrace.engine.status import Status
from tailrace.stream import Interrupt

_LARGE_REPLY_BYTES = 24 * 1024 * 1024
_PATIENCE_SECONDS = 1.0
"""A wait that lasts longer shows as ``paused``: then it is not the server that is silent."""


@dataclass
class ReadAhead:
    """The room that one run has. :meth:`moved` is the hook of its watermark."""

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
            self._changed = anyio.Event()
            with self.interrupt.interrupts(), anyio.move_on_after(_PATIENCE_SECONDS) as patience:
                await self._changed.wait()
            if self.interrupt.is_set:
                return
            if patience.cancelled_caught:
                self.status.enter(WatcherState.PAUSED)
