"""Lanes for single events: in order per document, parallel across documents, barriers alone.

An event whose document key is busy waits for the running event. An event without a document key
(drop, rename, invalidate, other DDL) is a barrier: it runs after everything before it is finished,
and everything after it waits.

A worker takes the next event that may run, calls the handler, and goes on with the events that now
wait for the same document. A worker that starts, or has opened a slice, wakes another one: if the
handler suspends, the other worker takes over, up to the handler's concurrency. If the handler never
suspends, its worker yields to other tasks once per slice, and workers woken then take nothing. It
takes nothing either while handlers have spent their slice of the event loop (loop_share).
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import anyio

from tailrace.engine.handle.delivery import Handled
from tailrace.engine.handle.lane import Assignment, OpenPlace, SharedLane, Unhandled, tokens
from tailrace.engine.position.place import Place
from tailrace.errors import TailraceError
from tailrace.event import ChangeEvent
from tailrace.event.naming import named

MOST_WAITING = 256
"""When this many events wait for busy documents, no further slice is opened. Otherwise one hot
document would cause everything in flight to be decoded."""


Item = tuple[ChangeEvent, OpenPlace, Hashable | None]
"""An event, its place, and its key, which is busy while the event runs (``None``: a barrier)."""


@dataclass(eq=False)
class DocumentLanes(SharedLane):
    """The lane of a handler that takes single events, with at most ``workers`` calls at once."""

    workers: int = 64
    _giving_way: int = 0
    _blocked: int = 0
    """Events that wait for a busy document."""
    _slice: deque[ChangeEvent] = field(default_factory=deque)
    """What is left of the open slice: a handled event must not stay in memory, else the next ones
    find nothing of it in the processor's cache."""
    _open: OpenPlace | None = None
    _all_open: dict[int, OpenPlace] = field(default_factory=dict)
    _busy: dict[Hashable, deque[Item] | None] = field(default_factory=dict)
    _active: int = 0
    _barrier: Item | None = None
    """The barrier that waits or runs: nothing else is taken."""

    def feed(self, places: list[Place]) -> None:
        self._queue.extend(places)
        self._wake_one()

    def unhandled(self) -> Unhandled:
        return {number: tokens(opened.left) for number, opened in self._all_open.items()}

    async def _work(self, assigned: Assignment[Item]) -> None:
        take, release, wake = self._take, self._release, anyio.Event()
        item, woken, opened_one = assigned.work, True, False
        deliver, again = self.delivery.deliver, assigned.last
        share = self.delivery.share
        try:
            while True:
                while item is not None:  # then the events that came to wait for its key
                    event, opened, key = item
                    if not self._halted:
                        try:
                            if again:  # its worker was lost: deliver it in a task of its own
                                await self.delivery.deliver_apart([event], Handled())
                            elif (error := await deliver(event)) is not None:
                                await self.delivery.recover([event], error, Handled())
                        except TailraceError as failure:
                            self._fail(failure)
                        else:
                            opened.left.discard(event)
                            if not opened.left:
                                self._finish(opened)
                    item = release(key)
                    if key is None or (item is not None and self._blocked == MOST_WAITING - 1):
                        self._wake_one()  # more may be taken than before
                    if item is not None and share.closed:
                        await share.next_slice(self.delivery, begun=True)
                if opened_one:
                    await self._give_way()
                    woken = True
                assigned.last = again = False
                if share.closed:
                    await share.next_slice(self.delivery)
                place = self.opened
                superfluous = woken and self._giving_way > 0
                item = None
                if not superfluous:
                    try:
                        item = take()
                    except Exception as error:  # noqa: BLE001 - malformed BSON, a filter that raises
                        self._fail(error)
                opened_one = place != self.opened
                if item is None:
                    if self._over and not superfluous:
                        self._wake_all()
                        return
                    wake = anyio.Event()
                    self._idle.append(wake)
                    await wake.wait()
                    woken = True
                elif woken or opened_one:
                    woken = False
                    self._wake_one()
        except BaseException:
            # The restarted worker looks for work at once, so no wake-up is lost.
            assigned.work = item
            if wake in self._idle:
                self._idle.remove(wake)
            raise

    def _named(self, work: Item) -> dict[str, Any]:
        return named(work[0])

    async def _give_way(self) -> None:
        self._giving_way += 1
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            self._giving_way -= 1

    @property
    def _over(self) -> bool:
        """Whether a worker that has nothing to take may end."""
        exhausted = self._barrier is None and not self._waiting
        return self._halted or (self._closed and exhausted)

    # --- which event may run next: nothing here waits or calls a handler -----------------------

    def _take(self) -> Item | None:
        """The next event that may run now; none once the lane is halted."""
        while self._barrier is None and not self._halted:
            if not self._slice:
                if not self._open_next():
                    return None
                continue
            event = self._slice.popleft()
            assert self._open is not None  # noqa: S101 - for the type checker
            if self.wants is not None and not self.wants(event):
                self._open.left.discard(event)
                self._open.place.wanted -= 1
                if not self._open.left:
                    self._finish(self._open)
                continue
            key = event.key
            item = (event, self._open, key)
            if key is None:
                self._barrier = item
            elif key not in self._busy:
                self._busy[key] = None
                self._active += 1
                return item
            else:
                blocked = self._busy[key]
                if blocked is None:
                    blocked = self._busy[key] = deque()
                blocked.append(item)
                self._blocked += 1
        if self._active or self._halted:
            return None  # active: the events before the barrier, or the barrier itself
        self._active = 1
        return self._barrier

    def _release(self, key: Hashable | None) -> Item | None:
        """Frees the key of an event that has ended; returns the next event that waits for it."""
        if key is None:
            self._barrier = None
        else:
            blocked = self._busy[key]
            if blocked:
                self._blocked -= 1
                return blocked.popleft()
            del self._busy[key]
        self._active -= 1
        return None

    def _finish(self, opened: OpenPlace) -> None:
        del self._all_open[opened.place.number]
        self.watermark.finish(opened.place)

    def _open_next(self) -> bool:
        self._open = None  # a finished slice must not stay in memory
        if not self._waiting or self._blocked >= MOST_WAITING:
            return False
        place = self._queue.popleft()
        events = self._protected(self._events_of(place))
        self.opened = place.number
        self._open = self._all_open[place.number] = OpenPlace(place, set(events))
        if self.before is not None or self.rows or place.already_stored:
            events = self._without_handled(place, events)
            self._open.left.intersection_update(events)
            place.wanted = len(events)
        self._slice = deque(events)
        if not events:
            self._finish(self._open)
        self.watermark.begin()
        return True
