"""Order per document, parallel across documents: the lanes of one handler on one scope.

Workers pull; nothing is pushed per event. They share the iterator over the current chunk, and a
map of busy keys keeps the order: an event whose key is busy waits with the worker that holds the
key. A handler that never really suspends is therefore called in a plain loop by one worker; only
where one suspends does the next worker take over, up to the handler's concurrency.

An event without a document key (drop, rename, invalidate, other DDL) is a barrier: everything
before it is finished first, everything after it waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator

import anyio

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.router import Wants
from tailrace.engine.handle.workers import Hand, Workers
from tailrace.engine.naming import named
from tailrace.engine.position.final_position import Unhandled, tokens
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.watermark import Place, Watermark
from tailrace.errors import DeliveryInterrupted, TailraceError
from tailrace.event import ChangeEvent


class _Open:
    """A place whose events are being handled, and those of them that are not."""

    __slots__ = ("left", "place")

    def __init__(self, place: Place, left: set[ChangeEvent]) -> None:
        self.place = place
        self.left = left


_MOST_WAITING = 256
"""Events that wait for a busy document before no further chunk is opened: else one hot document
would draw all that is in flight into memory, decoded, and a stop would have to drain it."""

_Item = tuple[ChangeEvent, _Open, Hashable | None]


class DocumentLanes:
    """Lanes of a handler that takes single events; they finish places on the ``watermark``.

    ``before`` takes out what the handler has already.
    """

    def __init__(
        self,
        delivery: Delivery,
        wants: Wants | None,
        workers: int,
        watermark: Watermark,
        before: HandledBefore | None = None,
    ) -> None:
        self._delivery = delivery
        self._wants = wants
        self.before = before
        self._limit = workers
        self._watermark = watermark
        self._queue: deque[Place] = deque()
        self._chunk: Iterator[ChangeEvent] = iter(())
        self._open: _Open | None = None
        self._all_open: dict[int, _Open] = {}
        self._busy: dict[Hashable, deque[_Item] | None] = {}
        self._active = 0
        self._waiting = 0
        self._barrier: _Item | None = None
        self._barrier_runs = False
        self._idle: deque[anyio.Event] = deque()
        self._giving_way = 0
        self._closed = False
        self._failure: Exception | None = None
        self._workers = Workers[_Item](
            self._work, self._fail, delivery, lambda item: named(item[0])
        )
        self.opened = -1

    @property
    def backlog(self) -> int:
        return len(self._queue)

    def feed(self, places: list[Place]) -> None:
        self._queue.extend(places)
        self._wake_one()

    def unhandled(self) -> Unhandled:
        return {number: tokens(opened.left) for number, opened in self._all_open.items()}

    def hurry(self) -> None:
        """Single events are handed over as they come."""

    def close(self, upto: int | None = None) -> None:
        self._closed = True
        if upto is not None:
            while self._queue and self._queue[-1].number > upto:
                self._queue.pop()
        self._wake_all()

    async def run(self) -> None:
        await self._workers.run()
        if self._failure is not None and not isinstance(self._failure, DeliveryInterrupted):
            raise self._failure

    # --- workers ---------------------------------------------------------------------------

    async def _work(self, hand: Hand[_Item]) -> None:
        """Takes events until there are none, then waits; the last word on a key is the worker's.

        Each worker that starts to work wakes one more, if there may be work for it: so a handler
        that suspends is soon called by all workers. Beside one that does not, the woken worker
        finds the other only giving way, and leaves the work to it.
        """
        if hand.work is not None:
            await self._go_on(hand)
        woken = True
        deliver = self._delivery.deliver
        wake, waiting = anyio.Event(), None
        try:
            while True:
                place = self.opened
                superfluous = woken and self._giving_way > 0
                item = None
                if not superfluous:
                    try:
                        item = self._take()
                    except Exception as error:  # noqa: BLE001 - bytes that cannot be decoded
                        self._fail(error)
                if item is None:
                    if self._over and not superfluous:
                        self._wake_all()
                        return
                    wake = anyio.Event()
                    self._idle.append(wake)
                    await wake.wait()
                    woken = True
                    continue
                opened_one = place != self.opened
                if woken or opened_one:
                    woken = False
                    self._wake_one()
                waiting = item
                while waiting is not None:  # and then those that have come to wait for its key
                    event, opened, key = waiting
                    if self._failure is None:
                        try:
                            await deliver(event)
                        except TailraceError as error:
                            self._fail(error)
                        else:
                            opened.left.discard(event)
                            if not opened.left:
                                self._close(opened)
                    waiting = self._release(key)
                if opened_one:
                    await self._give_way()
                    woken = True
        except BaseException:
            # Whatever comes of it, the next worker looks for work: no wake-up is lost.
            hand.work = waiting
            if wake in self._idle:
                self._idle.remove(wake)
            raise

    async def _go_on(self, hand: Hand[_Item]) -> None:
        """Does what a worker that was lost had in hand, and what has come to wait for its key."""
        while hand.work is not None:
            event, opened, key = hand.work
            if self._failure is None:
                try:
                    await self._delivery.deliver_apart(event)
                except TailraceError as error:
                    self._fail(error)
                else:
                    self._done(opened, event)
            hand.work = self._release(key)
        hand.again = False

    async def _give_way(self) -> None:
        """Once a chunk other tasks get their turn, even beside a handler that never suspends."""
        self._giving_way += 1
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            self._giving_way -= 1

    def _release(self, key: Hashable | None) -> _Item | None:
        """Gives the key back, or goes on with the next event that waits for it."""
        if key is None:
            self._barrier_runs = False
            self._wake_one()
        else:
            waiting = self._busy[key]
            if waiting:
                self._waiting -= 1
                if self._waiting == _MOST_WAITING - 1:
                    self._wake_one()
                return waiting.popleft()
            del self._busy[key]
        self._active -= 1
        return None

    def _take(self) -> _Item | None:
        """The next event that may run now; never waits."""
        while self._failure is None and not self._barrier_runs:
            if self._barrier is not None:
                if self._active:
                    return None
                item, self._barrier = self._barrier, None
                self._barrier_runs = True
                self._active = 1
                return item
            event = next(self._chunk, None)
            if event is None:
                if not self._open_next():
                    return None
                continue
            assert self._open is not None  # noqa: S101 - for the type checker
            if self._wants is not None and not self._wants(event):
                self._done(self._open, event)
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
                waiting = self._busy[key]
                if waiting is None:
                    waiting = self._busy[key] = deque()
                waiting.append(item)
                self._waiting += 1
        return None

    def _open_next(self) -> bool:
        self._chunk, self._open = iter(()), None  # what is done with must not stay in memory
        if not self._queue or self._waiting >= _MOST_WAITING:
            return False
        place = self._queue.popleft()
        assert place.chunk is not None  # noqa: S101 - bookmarks are born finished, never fed
        events = place.chunk.events()
        self.opened = place.number
        self._open = self._all_open[place.number] = _Open(place, set(events))
        if self.before is not None:
            events = self.before.of(events)
            self._open.left.intersection_update(events)
            if self.before.over:
                self.before = None
        self._chunk = iter(events)
        if not events:
            self._close(self._open)
        self._watermark.begin()
        return True

    def _fail(self, error: Exception) -> None:
        """The first failure counts: nothing more is begun, and what runs may finish."""
        self._failure = self._failure or error
        self._wake_all()

    def _done(self, opened: _Open, event: ChangeEvent) -> None:
        opened.left.discard(event)
        if not opened.left:
            self._close(opened)

    def _close(self, opened: _Open) -> None:
        del self._all_open[opened.place.number]
        self._watermark.finish(opened.place)

    @property
    def _over(self) -> bool:
        """Whether a worker with nothing to take may end."""
        if self._failure is not None:
            return True
        at_barrier = self._barrier is not None or self._barrier_runs
        return self._closed and not self._queue and not at_barrier

    def _wake_one(self) -> None:
        if self._idle:
            self._idle.popleft().set()
        elif self._workers.running < self._limit:
            self._workers.start()

    def _wake_all(self) -> None:
        while self._idle:
            self._idle.popleft().set()
