"""Lanes for batches in order per document: several calls at once, each of other documents.

The hash of its document key decides to which partition an event belongs. A partition has one call
at a time, in the stream's order. An event without a document key (DDL, the edges of a snapshot) is
a barrier: it comes alone, after everything before it is handled, and everything after it waits.

Workers take calls from the partitions, and open places while partitions want more events. A worker
that has taken a call wakes another one, which takes the call of another partition.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from tailrace.engine.handle.delivery import Handled
from tailrace.engine.handle.lane import (
    Assignment,
    OpenPlace,
    SharedLane,
    Unhandled,
    tokens,
    woken,
)
from tailrace.engine.position.place import Place
from tailrace.errors import TailraceError
from tailrace.event import ChangeEvent
from tailrace.event.naming import named

Deliver = Callable[[Sequence[ChangeEvent], Handled], Awaitable[None]]

Item = tuple[ChangeEvent, OpenPlace]
"""An event, and its place."""


@dataclass(slots=True, eq=False)
class Partition:
    """The events of some documents that wait for their call; ``busy``: a call of them runs."""

    waiting: deque[Item] = field(default_factory=deque)
    size: int = 0
    """The bytes of the waiting events."""
    since: float = 0.0
    """Since when the first of them waits, by the event loop's clock."""
    busy: bool = False


@dataclass(slots=True, eq=False)
class BatchCall:
    """The events of one call. ``partition`` is ``None`` for a barrier."""

    partition: Partition | None
    items: Sequence[Item]
    handled: Handled = field(default_factory=Handled)


@dataclass(eq=False)
class KeyLanes(SharedLane):
    """The lane of a handler that takes batches ordered by key; ``workers`` is its concurrency."""

    workers: int = 8
    _partitions: Sequence[Partition] = field(init=False)
    _next: deque[Partition] = field(init=False)
    """The partitions, the one that had no call for longest first."""
    _waiting_events: int = 0
    _calls: set[BatchCall] = field(default_factory=set)
    """The calls that run."""
    _barrier: Item | None = None
    """The barrier that waits or runs: nothing after it is taken."""
    _slice: Iterator[ChangeEvent] = field(default_factory=lambda: iter(()))
    _open: OpenPlace | None = None
    """The place of which the slice has further events."""
    _all_open: dict[int, OpenPlace] = field(default_factory=dict)
    _flush: bool = False

    def __post_init__(self) -> None:
        self._partitions = [Partition() for _ in range(self.workers)]
        self._next = deque(self._partitions)

    def feed(self, places: list[Place]) -> None:
        self._queue.extend(places)
        self._flush = False
        self._wake_one()

    def flush(self) -> None:
        self._flush = True
        self._wake_all()

    def unhandled(self) -> Unhandled:
        handled = set().union(*(call.handled.tokens for call in self._calls))
        return {n: tokens(opened.left) - handled for n, opened in self._all_open.items()}

    # --- workers -----------------------------------------------------------------------------

    async def _work(self, assigned: Assignment[BatchCall]) -> None:
        share = self.delivery.share
        try:
            if assigned.work is not None:  # its worker was lost
                await self._handle(assigned.work, self.delivery.deliver_apart)
                assigned.work, assigned.last = None, False
            while True:
                if share.closed:
                    await share.next_slice(self.delivery)
                call = self._take()
                if call is None:
                    if self._over:
                        self._wake_all()
                        return
                    await self._wait()
                    continue
                assigned.work = call
                self._wake_one()
                await self._handle(call, self.delivery.deliver_all)
                assigned.work, assigned.last = None, False
        except TailraceError as error:
            self._fail(error)

    async def _handle(self, call: BatchCall, deliver: Deliver) -> None:
        await deliver([event for event, _ in call.items], call.handled)
        finished = []
        for event, opened in call.items:
            opened.left.discard(event)
            if not opened.left:
                finished.append(self._all_open.pop(opened.place.number).place)
        self._calls.discard(call)
        if call.partition is None:
            self._barrier = None
        else:
            call.partition.busy = False
        if finished:
            self.watermark.finish(*finished)

    async def _wait(self) -> None:
        """Waits until there may be a call, or until one has lingered long enough."""
        wake = anyio.Event()
        self._idle.append(wake)
        try:
            await woken(wake, self._seconds_to_linger())
        finally:
            with suppress(ValueError):
                self._idle.remove(wake)

    def _named(self, work: BatchCall) -> dict[str, Any]:
        return named(work.items[0][0])

    @property
    def _over(self) -> bool:
        """Whether a worker that has nothing to take may end."""
        waits = self._waiting_events or self._barrier is not None or self._open is not None
        return self._halted or (self._closed and not self._queue and not waits)

    # --- which call comes next: nothing here waits or calls a handler ------------------------

    def _take(self) -> BatchCall | None:
        """The next call that may begin now; none once the lane is halted."""
        try:
            more = self._open_next()
            while not self._halted:
                call = self._ready_call()
                if call is not None:
                    self._calls.add(call)
                    return call
                if not more:
                    return None
                more = self._open_next()
        except Exception as error:  # noqa: BLE001 - malformed BSON, a filter that raises
            self._fail(error)
        return None

    def _ready_call(self) -> BatchCall | None:
        for partition in self._next:
            if partition.waiting and not partition.busy and self._is_due(partition):
                self._next.remove(partition)
                self._next.append(partition)
                return self._call_of(partition)
        if self._barrier is None or self._calls or self._waiting_events:
            return None
        return BatchCall(None, [self._barrier])

    def _call_of(self, partition: Partition) -> BatchCall:
        bounds, waiting = self._bounds, partition.waiting
        items, size, rows = list[Item](), 0, waiting[0][1].place.rows
        most = self.delivery.size.most
        while waiting and len(items) < most and waiting[0][1].place.rows is rows:
            more = waiting[0][0].size
            if items and 0 < bounds.bytes < size + more:
                break
            size += more
            items.append(waiting.popleft())
        partition.busy = True
        partition.size -= size
        partition.since = anyio.current_time()
        self._waiting_events -= len(items)
        return BatchCall(partition, items)

    def _is_due(self, partition: Partition) -> bool:
        bounds = self._bounds
        return (
            not bounds.linger_seconds
            or self._flush
            or self._closed
            or self._barrier is not None
            or len(partition.waiting) >= self.delivery.size.most
            or 0 < bounds.bytes <= partition.size
            or anyio.current_time() >= partition.since + bounds.linger_seconds
        )

    def _seconds_to_linger(self) -> float | None:
        """Until the next partition is due; ``None`` if none waits for that."""
        lingering = [each.since for each in self._partitions if each.waiting and not each.busy]
        if not lingering:
            return None
        return max(min(lingering) + self._bounds.linger_seconds - anyio.current_time(), 0.0)

    def _open_next(self) -> bool:
        """Gives the partitions the events of one place, up to a barrier; returns whether it did.

        When as many events wait as all calls may take together, no further place is opened.
        """
        most = self.workers * self._bounds.events
        if self._barrier is not None or self._halted or self._waiting_events >= most:
            return False
        if self._open is None:
            if not self._queue:
                return False
            self._open_place(self._queue.popleft())
        opened, now = self._open, anyio.current_time()
        for event in self._slice:
            assert opened is not None  # noqa: S101 - for the type checker
            key = event.key
            if key is None:
                self._barrier = event, opened
                return True
            partition = self._partitions[hash(key) % self.workers]
            if not partition.waiting:
                partition.since = now
            partition.waiting.append((event, opened))
            partition.size += event.size
            self._waiting_events += 1
        self._slice, self._open = iter(()), None  # a finished slice must not stay in memory
        return True

    def _open_place(self, place: Place) -> None:
        events = self._wanted_of(place)
        self.opened = place.number
        if events:
            self._open = self._all_open[place.number] = OpenPlace(place, set(events))
            self._slice = iter(events)
        else:
            self.watermark.finish(place)
        self.watermark.begin()
