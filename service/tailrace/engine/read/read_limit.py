"""Bounds how far the reader of a run may be beyond its handlers: one reply, and the byte budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.plan.byte_budget import Share
from tailrace.engine.position.watermarks import Watermarks
from tailrace.engine.status.status import Status
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.stream import SERVER_REPLY_BYTES, Interrupt

_LEAST_REPLY_BYTES = 1024 * 1024
_LARGE_REPLY_BYTES = 24 * 1024 * 1024
_PATIENCE_SECONDS = 1.0
"""A longer wait shows as ``waiting``: the handlers cause it, not a silent server."""


def reply_bytes(budget: int) -> int:
    """How large a reply may be. The driver has one two times, and one more is read ahead: beside a
    small budget, replies of 16 MB would be most of the memory."""
    whole = budget // 4 >= SERVER_REPLY_BYTES
    return SERVER_REPLY_BYTES if whole else max(budget // 16, _LEAST_REPLY_BYTES)


@dataclass
class ReadLimit:
    """Bounds how far one run reads beyond its handlers. :meth:`moved` is the hook of their
    watermarks; ``make_room`` lets one leave that holds the others, if there is such a handler.

    The run reads one reply more than the fastest handler has opened; the budget bounds slower ones.
    After a large reply it reads none: that reply stays in memory while any of its events is needed.
    """

    share: Share
    status: Status
    interrupt: Interrupt
    make_room: Callable[[], bool] = lambda: False
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _handlers: Sequence[HandlerRun] = ()
    """For which a reply waits for room."""
    _waiting: set[anyio.CancelScope] = field(default_factory=set)
    """In which replies, and rows, wait."""

    def moved(self, freed: int) -> None:
        """Handlers opened or finished places, which freed this many bytes: there may be room."""
        if freed:
            self.share.release(freed)
        self._changed.set()
        if waiting := self._waiting:
            self._waiting = set()
            self.make_room()  # which frees bytes for the reply that waits
            if self._hold_nothing:
                for cancel_scope in waiting:
                    cancel_scope.cancel()
            else:
                self._waiting = waiting

    async def acquire(self, size: int, handlers: Sequence[HandlerRun]) -> bool:
        """Waits until the budget has ``size`` bytes for a reply; returns False on an interrupt."""
        self._handlers = handlers
        while not self.share.try_acquire(size):
            if self._hold_nothing:
                self.share.take(size)
                return True
            if not self.make_room():
                return await self._wait_for(size)
        return True

    async def _wait_for(self, size: int) -> bool:
        self.status.enter(WatcherState.WAITING)
        _flush(self._handlers)
        waiting = anyio.CancelScope()
        try:
            with self.interrupt.interrupts() as stopping, waiting:
                self._waiting.add(waiting)
                await self.share.acquire(size)
                return True
        finally:
            self._waiting.discard(waiting)
        if stopping.cancelled_caught or self.interrupt.is_set:
            return False
        self.share.take(size)
        return True

    @property
    def _hold_nothing(self) -> bool:
        """Whether only handlers that have left hold anything: nobody else can wait for these."""
        return not any(each.watermark.size for each in self._handlers)

    async def until_hungry(
        self, size: int, places: int, handlers: Sequence[HandlerRun], watermarks: Watermarks
    ) -> None:
        """Waits while even the fastest handler has more than one reply of ``places`` to open.

        After a large reply: until nothing is in flight.
        """
        most = max(places, 1) if size < _LARGE_REPLY_BYTES else 0
        if not most:
            _flush(handlers)
        while _backlog(handlers) > most or (not most and watermarks.size):
            with self.interrupt.interrupts(), anyio.move_on_after(_PATIENCE_SECONDS) as patience:
                await self._change()
            if self.interrupt.is_set:
                return
            if patience.cancelled_caught:
                self.status.enter(WatcherState.WAITING)

    async def until_room(self, places: int, handlers: Sequence[HandlerRun]) -> None:
        """Waits while even the fastest handler has more than ``places`` places to open."""
        while _backlog(handlers) > places:
            await self._change()

    async def _change(self) -> None:
        if self._changed.is_set():
            self._changed = anyio.Event()
        await self._changed.wait()


def _backlog(handlers: Sequence[HandlerRun]) -> int:
    """How many places even the fastest handler has not opened."""
    return min((each.lane.backlog for each in handlers if each.lane is not None), default=0)


def _flush(handlers: Sequence[HandlerRun]) -> None:
    for each in handlers:
        if each.lane is not None:
            each.lane.flush()
