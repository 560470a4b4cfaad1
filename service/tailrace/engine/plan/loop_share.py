"""Bounds how long all handlers of a process together may run in one slice of the event loop.

A slice is one pass of the loop over what is ready.

A handler that blocks the loop for 10 ms a call would otherwise block it for 10 ms times the workers
of all scopes. When the share of a slice is spent, workers that want a further event wait in a
queue, and so do calls that want to go on after an ``await``. Each further slice releases as
many as fit.

Calls are measured step by step, from one ``await`` to the next. That costs some tenths of a
microsecond a call, so only the time at their ends is looked at while handlers do not block.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator
from math import inf
from time import perf_counter
from types import CoroutineType, coroutine
from typing import Any

SHARE_SECONDS = 0.02
"""How long handlers may run in one slice. The call that spends it may take longer."""

_CALM_SLICES = 256
"""After so many slices with calls, but without a spent share, calls are not measured."""
_IDLE_SECONDS = 1.0
"""After a pause of this length calls are measured again: many may begin in one slice."""
_SLICES_OF_BEGUN = 4
"""Begun calls go first, but for every fourth slice, in which a worker may begin another one."""


class _Queue:
    """Those who wait: lanes one by one, and first come, first served within a lane."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[object, deque[asyncio.Future[None]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def join(self, lane: object) -> asyncio.Future[None]:
        waiter = asyncio.get_running_loop().create_future()
        self._lanes.setdefault(lane, deque()).append(waiter)
        return waiter

    def release(self, most: int) -> list[object]:
        """Lets at most so many go on; returns their lanes."""
        released: list[object] = []
        while self._lanes and len(released) < most:
            lane, waiters = next(iter(self._lanes.items()))
            waiter = waiters.popleft()
            if waiters:
                self._lanes.move_to_end(lane)
            else:
                del self._lanes[lane]
            if not waiter.done():  # else its task was cancelled
                waiter.set_result(None)
                released.append(lane)
        return released


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


class LoopShare:
    """The share of the current slice. One object serves all scopes of a process."""

    __slots__ = (
        "_begun",
        "_calm",
        "_fits",
        "_last",
        "_released",
        "_scheduled",
        "_slices",
        "_spent",
        "_used",
        "_workers",
        "closed",
        "ends",
        "measuring",
    )

    def __init__(self) -> None:
        self.measuring = True
        """Whether calls are made by way of :meth:`measured`."""
        self.closed = False
        """Whether to ask :meth:`next_slice` before a further call: the share is spent, or others
        wait already."""
        self.ends = inf
        """Calls that end later, by the clock of deliveries, are told to :meth:`ended`."""
        self._spent = False
        self._used = 0.0
        self._released: set[object] = set()
        """The lanes that may go on in this slice until its share is spent."""
        self._scheduled = False
        self._begun, self._workers = _Queue(), _Queue()
        self._fits = 1
        """How many to release in the next slice."""
        self._slices = 0
        self._calm = 0
        self._last = -inf

    async def next_slice(self, lane: object, *, begun: bool = False) -> None:
        """Waits until a worker of this lane may begin a further call; returns at once if it may.

        ``begun``: it has its event already, so it comes before those that have none.
        """
        if lane in self._released:
            return
        if not self._scheduled:
            self._schedule()
        await (self._begun if begun else self._workers).join(lane)

    def measured(
        self, call: Callable[..., Awaitable[Any]], lane: object
    ) -> Callable[..., Awaitable[Any]]:
        """Wraps ``call``: before it goes on after an ``await``, it may wait for a later slice."""

        async def measured(*arguments: Any) -> Any:
            return await self.measure(call(*arguments), lane)

        return measured

    @coroutine
    def measure(self, call: Any, lane: object) -> Generator[Any, None, Any]:
        """Awaits the result of a call, step by step as :meth:`measured` does."""
        if not isinstance(call, CoroutineType):
            call = _awaited(call)
        error: BaseException | None = None
        while True:
            began = perf_counter()
            try:
                waits = call.send(None) if error is None else call.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                error = None  # else the error and this frame would keep each other
                self._spend(perf_counter() - began)
            try:
                yield waits
                if self.closed and lane not in self._released:
                    yield from self._begun.join(lane)
            except BaseException as caught:  # noqa: BLE001 - thrown into the call above
                error = caught

    # --- slices --------------------------------------------------------------------------------

    def ended(self, now: float) -> None:
        """A call that was not measured has ended, not before :attr:`ends`."""
        if self.ends > -inf:  # not the first one of this slice
            self._close()
            return
        if now - self._last > _IDLE_SECONDS:
            self._measure()
        self._last = now
        self.ends = now + SHARE_SECONDS
        if not self._scheduled:  # by a call that began while calls were measured
            self._schedule()

    def _spend(self, seconds: float) -> None:
        self._used += seconds
        if self._used >= SHARE_SECONDS:
            self._close()
        if not self._scheduled:
            self._schedule()

    def _close(self) -> None:
        self._spent = self.closed = True
        self._released.clear()
        self._measure()

    def _measure(self) -> None:
        self.measuring, self.ends, self._calm = True, inf, 0

    def _schedule(self) -> None:
        """What is scheduled now runs in the loop's next slice."""
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._begin_slice)

    def _begin_slice(self) -> None:
        self._fits = 1 if self._spent else min(2 * self._fits, 64)
        self._calm = 0 if self._spent else self._calm + 1
        self._spent, self._used, self._scheduled = False, 0.0, False
        if self.measuring and self._calm >= _CALM_SLICES:
            self.measuring = False
            self._last = inf  # no pause before the first call that is not measured
        self.ends = inf if self.measuring else -inf
        self._released.clear()
        if self._begun or self._workers:
            self._release()
            self._schedule()
        self.closed = bool(self._begun or self._workers)

    def _release(self) -> None:
        self._slices += 1
        first, then = self._begun, self._workers
        if self._slices % _SLICES_OF_BEGUN == 0:
            first, then = then, first
        released = first.release(self._fits)
        self._released.update(released, then.release(self._fits - len(released)))
