"""Parallel across documents: the workers that call a handler of single events, on one scope.

Each worker takes the next event that may run (:mod:`tailrace.engine.handle.document_order`), calls
the handler, and goes on with the events that have come to wait for the same document. A worker
that begins, or has opened a chunk, wakes one more: where the handler suspends, that one takes over,
up to the handler's concurrency. Where it never does, a worker gives way to other tasks once a
chunk, and one that is woken meanwhile leaves the work to it.
"""

from collections import deque
from dataclasses import dataclass, field

import anyio

from tailrace.engine.handle.document_order import MOST_WAITING, DocumentOrder, Item
from tailrace.engine.handle.workers import Assignment, Workers
from tailrace.engine.naming import named
from tailrace.engine.position.watermark import Place
from tailrace.errors import TailraceError


@dataclass(eq=False)
class DocumentLanes(DocumentOrder):
    """The lane of a handler that takes single events, with up to so many ``workers``."""

    workers: int = 64
    _idle: deque[anyio.Event] = field(default_factory=deque)
    _giving_way: int = 0

    def __post_init__(self) -> None:
        self._workers = Workers[Item](
            self._work, self._fail, self.delivery, lambda item: named(item[0])
        )

    def feed(self, places: list[Place]) -> None:
        self._queue.extend(places)
        self._wake_one()

    async def _work(self, assigned: Assignment[Item]) -> None:
        """Takes events until there are none, then waits."""
        take, release, wake = self._take, self._release, anyio.Event()
        item, woken, opened_one = assigned.work, True, False
        deliver, again = self.delivery.deliver, assigned.last
        try:
            while True:
                while item is not None:  # and then those that have come to wait for its key
                    event, opened, key = item
                    if self._failure is None:
                        try:
                            if again:  # its worker was lost: now in a task of its own
                                await self.delivery.deliver_apart([event])
                            else:
                                await deliver(event)
                        except TailraceError as error:
                            self._fail(error)
                        else:
                            opened.left.discard(event)
                            if not opened.left:
                                self._finish(opened)
                    item = release(key)
                    if key is None or (item is not None and self._behind == MOST_WAITING - 1):
                        self._wake_one()  # more may be taken than before
                if opened_one:
                    await self._give_way()
                    woken = True
                assigned.last = again = False
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
            # The next worker looks for work at once: no wake-up is lost.
            assigned.work = item
            if wake in self._idle:
                self._idle.remove(wake)
            raise

    async def _give_way(self) -> None:
        self._giving_way += 1
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            self._giving_way -= 1

    @property
    def _over(self) -> bool:
        """Whether a worker with nothing to take may end."""
        exhausted = self._barrier is None and not self._waiting
        return self._failure is not None or (self._closed and exhausted)

    def _wake_one(self) -> None:
        if self._idle:
            self._idle.popleft().set()
        elif self._workers.running < self.workers:
            self._workers.start()

    def _wake_all(self) -> None:
        while self._idle:
            self._idle.popleft().set()
