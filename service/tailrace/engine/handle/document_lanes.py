"""Parallel across documents: the workers that call a handler of single events, on one scope.

Workers pull; nothing is pushed per event. Each takes the next event that may run
(:mod:`tailrace.engine.handle.document_order`), calls the handler, and goes on with the events that
have come to wait for the same document. A worker that starts to work, or has opened a chunk, wakes
one more: where the handler suspends, that one takes over, up to the handler's concurrency. Where it
never does, the first worker only gives way once a chunk; a worker that is woken then leaves the
work to it, so such a handler is called in a plain loop.
"""

from __future__ import annotations

from collections import deque

import anyio

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.document_order import MOST_WAITING, DocumentOrder, Item
from tailrace.engine.handle.router import Wants
from tailrace.engine.handle.workers import Assignment, Workers
from tailrace.engine.naming import named
from tailrace.engine.position.final_position import Unhandled
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.watermark import Place, Watermark
from tailrace.errors import DeliveryInterrupted, TailraceError


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
        self._order = DocumentOrder(wants, watermark, before)
        self._limit = workers
        self._idle: deque[anyio.Event] = deque()
        self._giving_way = 0
        self._closed = False
        self._failure: Exception | None = None
        self._workers = Workers[Item](self._work, self._fail, delivery, lambda item: named(item[0]))

    @property
    def backlog(self) -> int:
        return len(self._order.queue)

    @property
    def opened(self) -> int:
        return self._order.opened

    @property
    def before(self) -> HandledBefore | None:
        return self._order.before

    def unhandled(self) -> Unhandled:
        return self._order.unhandled()

    def feed(self, places: list[Place]) -> None:
        self._order.queue.extend(places)
        self._wake_one()

    def hurry(self) -> None:
        """Single events are handed over as they come."""

    def close(self, upto: int | None = None) -> None:
        self._closed = True
        queue = self._order.queue
        if upto is not None:
            while queue and queue[-1].number > upto:
                queue.pop()
        self._wake_all()

    async def run(self) -> None:
        await self._workers.run()
        if self._failure is not None and not isinstance(self._failure, DeliveryInterrupted):
            raise self._failure

    # --- workers ---------------------------------------------------------------------------

    async def _work(self, assigned: Assignment[Item]) -> None:
        """Takes events until there are none, then waits."""
        if assigned.work is not None:
            await self._go_on(assigned)
        order, deliver, release = self._order, self._delivery.deliver, self._order.release
        wake, item, woken = anyio.Event(), None, True
        try:
            while True:
                place = order.opened
                superfluous = woken and self._giving_way > 0
                item = None if superfluous else self._next()
                if item is None:
                    if self._over and not superfluous:
                        self._wake_all()
                        return
                    wake = anyio.Event()
                    self._idle.append(wake)
                    await wake.wait()
                    woken = True
                    continue
                opened_one = place != order.opened
                if woken or opened_one:
                    woken = False
                    self._wake_one()
                while item is not None:  # and then those that have come to wait for its key
                    event, opened, key = item
                    if self._failure is None:
                        try:
                            await deliver(event)
                        except TailraceError as error:
                            self._fail(error)
                        else:
                            opened.left.discard(event)
                            if not opened.left:
                                order.done(opened, event)
                    item = release(key)
                    if key is None or (item is not None and order.waiting == MOST_WAITING - 1):
                        self._wake_one()  # more may be taken than before
                if opened_one:
                    await self._give_way()
                    woken = True
        except BaseException:
            # Whatever comes of it, the next worker looks for work: no wake-up is lost.
            assigned.work = item
            if wake in self._idle:
                self._idle.remove(wake)
            raise

    async def _go_on(self, assigned: Assignment[Item]) -> None:
        """Does what a lost worker was assigned, and what has come to wait for the same key."""
        while assigned.work is not None:
            event, opened, key = assigned.work
            if self._failure is None:
                try:
                    await self._delivery.deliver_apart(event)
                except TailraceError as error:
                    self._fail(error)
                else:
                    self._order.done(opened, event)
            assigned.work = self._order.release(key)
            self._wake_one()
        assigned.again = False

    async def _give_way(self) -> None:
        """Once a chunk other tasks get their turn, even beside a handler that never suspends."""
        self._giving_way += 1
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            self._giving_way -= 1

    def _next(self) -> Item | None:
        if self._failure is not None:
            return None
        try:
            return self._order.take()
        except Exception as error:  # noqa: BLE001 - bytes that cannot be decoded, a filter that raises
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        """The first failure counts: nothing more is begun, and what runs may finish."""
        self._failure = self._failure or error
        self._wake_all()

    @property
    def _over(self) -> bool:
        """Whether a worker with nothing to take may end."""
        return self._failure is not None or (self._closed and self._order.exhausted)

    def _wake_one(self) -> None:
        if self._idle:
            self._idle.popleft().set()
        elif self._workers.running < self._limit:
            self._workers.start()

    def _wake_all(self) -> None:
        while self._idle:
            self._idle.popleft().set()
