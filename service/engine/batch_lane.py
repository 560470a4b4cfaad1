"""The lane of a handler that takes sequences: one call after another, in the stream's order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import anyio

from service.engine.beginning import Behind
from service.engine.delivery import Delivery
from service.engine.in_flight import Place
from service.engine.router import Wants
from service.errors import DeliveryInterrupted
from service.model import ChangeEvent
from service.model.batch import Events


class BatchLane:
    """Hands over what has come, up to the handler's batch size a call.

    ``finished`` and ``opened_one`` are as in :class:`service.engine.lanes.EventLanes`. ``behind``
    leaves out what the handler's destination has already. For a handler of whole transactions no
    call ends inside a place, and so inside no transaction.
    """

    def __init__(
        self,
        delivery: Delivery,
        wants: Wants | None,
        finished: Callable[..., None],
        opened_one: Callable[[], None],
        behind: Behind | None = None,
    ) -> None:
        handler = delivery.handler
        self._delivery = delivery
        self._wants = wants
        self._behind = behind
        self._whole = handler.whole_transactions
        self._owns = handler.position is not None
        self._batch_size = handler.batch_size
        self._batch_bytes = handler.batch_bytes
        self._linger_seconds = handler.linger_seconds
        self._finished = finished
        self._opened_one = opened_one
        self._line: deque[Place] = deque()
        self._events = 0
        self._bytes = 0
        self._fed = anyio.Event()
        self._hurried = False
        self._lingering = False
        self._closed = False
        self.opened = -1

    @property
    def backlog(self) -> int:
        # What lingers is no backlog: it waits for the reader.
        return 0 if self._lingering else len(self._line)

    def feed(self, places: list[Place]) -> None:
        for place in places:
            self._count(place, 1)
        self._line.extend(places)
        self._hurried = False
        self._fed.set()

    def hurry(self) -> None:
        self._hurried = True
        self._fed.set()

    def close(self, upto: int | None = None) -> None:
        self._closed = True
        if upto is not None:
            while self._line and self._line[-1].number > upto:
                self._count(self._line.pop(), -1)
        self._fed.set()

    async def run(self) -> None:
        while True:
            if self._line:
                await self._linger()
                try:
                    await self._hand_over()
                except DeliveryInterrupted:
                    return
            elif self._closed:
                return
            else:
                self._fed = anyio.Event()
                await self._fed.wait()

    async def _linger(self) -> None:
        """Gives more events the time to come, where the handler asks for it."""
        if not self._linger_seconds or self._full or self._hurried:
            return
        self._lingering = True
        self._opened_one()  # the reader may be waiting for this lane to catch up
        with anyio.move_on_after(self._linger_seconds):
            while not (self._closed or self._hurried or self._full):
                self._fed = anyio.Event()
                await self._fed.wait()
        self._lingering = False

    @property
    def _full(self) -> bool:
        return self._events >= self._batch_size or 0 < self._batch_bytes <= self._bytes

    def _count(self, place: Place, sign: int) -> None:
        self._events += sign * place.events
        self._bytes += sign * place.size

    async def _hand_over(self) -> None:
        places: list[Place] = []
        looked_at = size = 0  # wanted or not: else a filter could keep the loop for a long line
        most_events, most_bytes = self._room
        while self._line:
            place = self._line[0]
            looked_at += place.events
            size += place.size
            too_large = looked_at > most_events or 0 < most_bytes < size
            if places and too_large:
                break
            self._count(self._line.popleft(), -1)
            places.append(place)
        self.opened = places[-1].number
        self._opened_one()
        await self._handle(places, self._wanted(places))

    @property
    def _room(self) -> tuple[int, int]:
        """Events and bytes (0: no bound) of the places that the next call may get."""
        return self._batch_size, self._batch_bytes

    async def _handle(self, places: list[Place], events: Sequence[ChangeEvent]) -> None:
        step = len(events) if self._whole else self._batch_size
        if not events:
            await anyio.lowlevel.checkpoint()
        elif len(events) <= step:
            await self._delivery.deliver_all(events)
        else:
            events = list(events)
            for first in range(0, len(events), step):
                await self._delivery.deliver_all(events[first : first + step])
        self._finished(*places)

    def _wanted(self, places: Sequence[Place]) -> Sequence[ChangeEvent]:
        if self._wants is None and self._behind is None:
            chunks = [place.chunk for place in places if place.chunk is not None]
            if self._owns:
                for place, chunk in zip(places, chunks, strict=True):
                    self._own(place, ChangeEvent(chunk.buffer, chunk.bounds[-2]))
            return Events(chunks)
        return [event for place in places for event in self._wanted_of(place)]

    def _wanted_of(self, place: Place) -> list[ChangeEvent]:
        assert place.chunk is not None  # noqa: S101 - for the type checker
        events = place.chunk.events()
        if self._wants is not None:
            events = [event for event in events if self._wants(event)]
        last = events[-1] if events else None
        if self._behind is not None:
            events = self._behind.of(events)
            if not self._behind.passed:
                last = None  # how far the destination was is noted already
            else:
                self._behind = None
        if self._owns and last is not None:
            self._own(place, last)
        return events

    def _own(self, place: Place, last: ChangeEvent) -> None:
        place.owned = {self._delivery.name: last.token.digest}
