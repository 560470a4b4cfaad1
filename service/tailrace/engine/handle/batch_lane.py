"""The lane of a handler that takes sequences: one call after another, in the stream's order."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import anyio

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.router import Wants
from tailrace.engine.handle.workers import Assignment, Workers
from tailrace.engine.naming import named
from tailrace.engine.position.final_position import Unhandled, tokens
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.watermark import Place, Watermark
from tailrace.errors import DeliveryInterrupted, TailraceError
from tailrace.event import ChangeEvent
from tailrace.event.batch import Events
from tailrace.model import ResumeToken


class Taken:
    """Places that were taken up together, their events, and how many of those are handled.

    ``parts`` are the events by place, and ``aside`` those of them that were set aside.
    """

    __slots__ = ("aside", "done", "events", "parts", "places")

    def __init__(self, places: Sequence[Place], events: Sequence[ChangeEvent] = ()) -> None:
        self.places = places
        self.events = events
        self.parts: list[Sequence[ChangeEvent]] = []
        self.done = 0
        self.aside: set[ResumeToken] = set()

    def note(self, handler: str) -> None:
        """Notes by place where the handler's destination stands, with what is handled."""
        done = self.done
        for place, events in zip(self.places, self.parts, strict=True):
            stored = events if done >= len(events) else events[:done]
            done -= len(events)
            if self.aside:
                stored = [event for event in stored if event.token not in self.aside]
            if stored:
                place.note(handler, stored[-1].token)
            if done <= 0:
                break


class BatchLane:
    """Hands over what has come, up to the handler's batch size a call.

    It finishes places on the ``watermark``; ``before`` takes out what the handler has already.
    For a handler of whole transactions no call ends inside a place, and so inside no transaction.
    """

    def __init__(
        self,
        delivery: Delivery,
        wants: Wants | None,
        watermark: Watermark,
        before: HandledBefore | None = None,
    ) -> None:
        handler = delivery.handler
        self._delivery = delivery
        self._wants = wants
        self.before = before
        self._whole = handler.whole_transactions
        self._owns = handler.position is not None
        self._batch_size = handler.batch_size
        self._batch_bytes = handler.batch_bytes
        self._linger_seconds = handler.linger_seconds
        self._watermark = watermark
        self._queue: deque[Place] = deque()
        self._events = 0
        self._bytes = 0
        self._fed = anyio.Event()
        self._hurried = False
        self._lingering = False
        self._closed = False
        self._failure: Exception | None = None
        self._workers = Workers[Taken](
            self._work,
            self._fail,
            delivery,
            lambda taken: named(taken.events[taken.done]) if taken.done < len(taken.events) else {},
            twice=handler.commit is None,
        )
        self._at = Taken(())
        self.opened = -1

    @property
    def backlog(self) -> int:
        # What lingers is no backlog: it waits for the reader.
        return 0 if self._lingering else len(self._queue)

    def unhandled(self) -> Unhandled:
        at = self._at
        left = tokens(at.events[at.done :]) - self._delivery.over
        return {place.number: left for place in at.places}

    def feed(self, places: list[Place]) -> None:
        for place in places:
            self._count(place, 1)
        self._queue.extend(places)
        self._hurried = False
        self._fed.set()

    def hurry(self) -> None:
        self._hurried = True
        self._fed.set()

    def close(self, upto: int | None = None) -> None:
        self._closed = True
        if upto is not None:
            while self._queue and self._queue[-1].number > upto:
                self._count(self._queue.pop(), -1)
        self._fed.set()

    async def run(self) -> None:
        await self._workers.run()
        if self._failure is not None:
            raise self._failure

    async def _work(self, assigned: Assignment[Taken]) -> None:
        try:
            if assigned.work is not None:
                await self._handle(assigned.work, self._delivery.deliver_all_apart)
                assigned.work, assigned.again, self._at = None, False, Taken(())
            while not self._done:
                if self._queue:
                    await self._linger()
                    await self._hand_over(assigned)
                else:
                    await self._wait()
        except DeliveryInterrupted:
            return
        except TailraceError as error:
            self._fail(error)

    @property
    def _done(self) -> bool:
        return self._failure is not None or (self._closed and not self._queue)

    async def _wait(self) -> None:
        self._fed = anyio.Event()
        await self._fed.wait()

    def _fail(self, error: Exception) -> None:
        self._failure = error

    async def _linger(self) -> None:
        """Gives more events the time to come, where the handler asks for it."""
        if not self._linger_seconds or self._full or self._hurried:
            return
        self._lingering = True
        self._watermark.begin()  # the reader may be waiting for this lane to catch up
        try:
            with anyio.move_on_after(self._linger_seconds):
                while not (self._closed or self._hurried or self._full):
                    self._fed = anyio.Event()
                    await self._fed.wait()
        finally:
            self._lingering = False

    @property
    def _full(self) -> bool:
        return self._events >= self._batch_size or 0 < self._batch_bytes <= self._bytes

    def _count(self, place: Place, sign: int) -> None:
        self._events += sign * place.events
        self._bytes += sign * place.size

    async def _hand_over(self, assigned: Assignment[Taken]) -> None:
        places: list[Place] = []
        looked_at = size = 0  # wanted or not: else a filter could keep the loop for a long line
        most_events, most_bytes = self._room
        while self._queue:
            place = self._queue[0]
            looked_at += place.events
            size += place.size
            too_large = looked_at > most_events or 0 < most_bytes < size
            if places and too_large:
                break
            self._count(self._queue.popleft(), -1)
            places.append(place)
        self.opened = places[-1].number
        self._watermark.begin()
        chunks = [place.chunk for place in places if place.chunk is not None]
        self._at = taken = Taken(places, Events(chunks))
        self._leave_out(taken)
        assigned.work = taken
        await self._handle(taken, self._delivery.deliver_all)
        assigned.work, self._at = None, Taken(())

    @property
    def _room(self) -> tuple[int, int]:
        """Events and bytes (0: no bound) of the places that the next call may get."""
        return self._batch_size, self._batch_bytes

    async def _handle(
        self, taken: Taken, deliver: Callable[[Sequence[ChangeEvent]], Awaitable[None]]
    ) -> None:
        events = taken.events
        step = len(events) if self._whole else self._batch_size
        if not events:
            await anyio.lowlevel.checkpoint()
        elif len(events) > step:
            taken.events = events = list(events)
        while taken.done < len(events):
            whole = len(events) <= step
            some = events if whole else events[taken.done : taken.done + step]
            await deliver(some)
            taken.done += len(some)
            if self._owns:
                taken.aside |= self._delivery.aside
                taken.note(self._delivery.name)
        self._watermark.finish(*taken.places)

    def _leave_out(self, taken: Taken) -> None:
        """Takes out what the handler does not want, and what it has already."""
        if self._wants is None and self.before is None:
            if self._owns:
                taken.parts = [Events([p.chunk]) for p in taken.places if p.chunk is not None]
            return
        taken.parts = [self._wanted_of(place) for place in taken.places]
        taken.events = [event for part in taken.parts for event in part]

    def _wanted_of(self, place: Place) -> list[ChangeEvent]:
        assert place.chunk is not None  # noqa: S101 - for the type checker
        events = place.chunk.events()
        if self.before is not None:
            events = self.before.of(events)
            if self.before.over:
                self.before = None
        return events if self._wants is None else [event for event in events if self._wants(event)]
