"""The lane of a handler that takes sequences: one call after another, in the stream's order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import anyio

from service.engine.delivery import Delivery
from service.engine.in_flight import Place
from service.engine.router import Wants
from service.errors import DeliveryInterrupted
from service.model import ChangeEvent


class BatchLane:
    """Hands over what has come, up to the handler's batch size a call.

    ``finished`` and ``opened_one`` are as in :class:`service.engine.lanes.EventLanes`.
    """

    def __init__(
        self,
        delivery: Delivery,
        wants: Wants | None,
        finished: Callable[[Place], None],
        opened_one: Callable[[], None],
    ) -> None:
        self._delivery = delivery
        self._wants = wants
        self._batch_size = delivery.handler.batch_size
        self._linger_seconds = delivery.handler.linger_seconds
        self._finished = finished
        self._opened_one = opened_one
        self._line: deque[Place] = deque()
        self._fed = anyio.Event()
        self._closed = False
        self.opened = -1

    @property
    def backlog(self) -> int:
        return len(self._line)

    def feed(self, places: list[Place]) -> None:
        self._line.extend(places)
        self._fed.set()

    def close(self, upto: int | None = None) -> None:
        self._closed = True
        if upto is not None:
            while self._line and self._line[-1].number > upto:
                self._line.pop()
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
        if not self._linger_seconds:
            return
        with anyio.move_on_after(self._linger_seconds):
            while not self._closed and self._waiting_events() < self._batch_size:
                self._fed = anyio.Event()
                await self._fed.wait()

    def _waiting_events(self) -> int:
        return sum(len(place.chunk) for place in self._line if place.chunk is not None)

    async def _hand_over(self) -> None:
        places: list[Place] = []
        events: list[ChangeEvent] = []
        looked_at = 0  # wanted or not: else a filter could keep the event loop for a long line
        while self._line:
            place = self._line[0]
            assert place.chunk is not None  # noqa: S101 - bookmarks are never fed
            looked_at += len(place.chunk)
            if places and looked_at > self._batch_size:
                break
            places.append(self._line.popleft())
            events.extend(self._wanted(place))
        self.opened = places[-1].number
        self._opened_one()
        for first in range(0, len(events), self._batch_size):
            await self._delivery.deliver_all(events[first : first + self._batch_size])
        if not events:
            await anyio.lowlevel.checkpoint()
        for place in places:
            self._finished(place)

    def _wanted(self, place: Place) -> list[ChangeEvent]:
        assert place.chunk is not None  # noqa: S101 - for the type checker
        if self._wants is None:
            return place.chunk.undecoded()
        return [event for event in place.chunk.events() if self._wants(event)]
