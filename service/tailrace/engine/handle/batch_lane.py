"""The lane of a handler that takes sequences: one call at a time, in the stream's order."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from tailrace.engine.handle.delivery import Handled
from tailrace.engine.handle.lane import Assignment, Lane, Unhandled, tokens, woken
from tailrace.engine.position.place import Place
from tailrace.errors import DeliveryInterrupted, TailraceError
from tailrace.event import ChangeEvent
from tailrace.event.batch import Events
from tailrace.event.naming import named
from tailrace.model import ResumeToken

Deliver = Callable[[Sequence[ChangeEvent], Handled], Awaitable[None]]


@dataclass(slots=True)
class Gathered:
    """Places that are delivered together, their events, and how many events are ``done``."""

    places: list[Place] = field(default_factory=list)
    events: Sequence[ChangeEvent] = ()
    parts: list[Sequence[ChangeEvent]] = field(default_factory=list)
    """The events by place."""
    done: int = 0
    handled: Handled = field(default_factory=Handled)
    """Of the call that is running."""
    dead_letters: set[ResumeToken] = field(default_factory=set)

    def note(self, *, ddl_apart: bool) -> None:
        """Notes by place the last event that the destination has stored, even if more is unhandled.

        Otherwise a destination restored to an older position would look as if it had not moved.
        ``ddl_apart``: of DDL it stores no position.
        """
        done = self.done
        for place, events in zip(self.places, self.parts, strict=True):
            if done <= 0:
                break
            stored = events if done >= len(events) else events[:done]
            done -= len(events)
            if self.dead_letters:
                stored = [event for event in stored if event.token not in self.dead_letters]
            if ddl_apart and stored and stored[-1].is_ddl:
                stored = [event for event in stored if not event.is_ddl]
            if stored:
                place.note(stored[-1].token)

    def note_part(self) -> None:
        """Notes the same for a call that ended while only some of its events were stored."""
        stored = self.handled.tokens - self.handled.dead_letters
        for place, events in zip(self.places, self.parts, strict=True):
            found = [event.token for event in events if event.token in stored]
            if found:
                place.note(found[-1])


@dataclass(eq=False)
class BatchLane(Lane):
    """Hands over what has come: per call at most the batch size, or whole places (transactions)."""

    _fed: anyio.Event = field(default_factory=anyio.Event)
    _flush: bool = False
    _lingering: bool = False
    _assigned: Assignment[Gathered] = field(default_factory=Assignment)

    @property
    def backlog(self) -> int:
        # While it lingers, the lane waits for the reader.
        return 0 if self._lingering else len(self._queue)

    def unhandled(self) -> Unhandled:
        work = self._assigned.work
        if work is None:
            return {}
        left = tokens(work.events[work.done :]) - work.handled.tokens
        return {place.number: left for place in work.places}

    def feed(self, places: list[Place]) -> None:
        self._queue.extend(places)
        self._flush = False
        self._wake_all()

    def flush(self) -> None:
        self._flush = True
        self._wake_all()

    def _wake_all(self) -> None:
        self._fed.set()

    async def _work(self, assigned: Assignment[Gathered]) -> None:
        self._assigned = assigned
        try:
            if assigned.work is not None:
                await self._handle(assigned.work, self.delivery.deliver_apart)
                assigned.work, assigned.last = None, False
            while not self._done:
                if self._waiting:
                    await self._hand_over(assigned)
                else:
                    await self._wait()
        except TailraceError as error:
            self._fail(error)

    @property
    def _done(self) -> bool:
        return self._halted or (self._closed and not self._waiting)

    async def _wait(self, seconds: float | None = None) -> None:
        """Waits until more is fed, or for so many seconds."""
        self._fed = anyio.Event()
        await woken(self._fed, seconds)

    async def _hand_over(self, assigned: Assignment[Gathered]) -> None:
        if self._bounds.linger_seconds:
            await self._linger()
        if self.delivery.share.closed:
            await self.delivery.share.next_slice(self.delivery)
        work = Gathered()
        events = size = 0  # wanted or not: else a filter would block the loop for a long time
        most_events, most_bytes = self._room
        while self._waiting:
            place = self._queue[0]
            events, size = events + place.events, size + place.size
            if work.places and (events > most_events or 0 < most_bytes < size):
                break
            if work.places and place.rows is not work.places[0].rows:
                break  # rows of a snapshot and changes never share a call
            work.places.append(self._queue.popleft())
        if work.places:
            self._select(work)  # if a filter raises, the places are not opened
            self.opened = work.places[-1].number
            self.watermark.begin()
            assigned.work = work
            await self._handle(work, self.delivery.deliver_all)
            assigned.work, assigned.last = None, False

    async def _linger(self) -> None:
        self._lingering = True
        self.watermark.begin()  # the reader may be waiting for this lane to catch up
        end = anyio.current_time() + self._bounds.linger_seconds
        try:
            while not (self._closed or self._halted or self._flush or self._full):
                left = end - anyio.current_time()
                if left <= 0:
                    break
                await self._wait(left)
        finally:
            self._lingering = False

    @property
    def _full(self) -> bool:
        events, size, calls = 0, 0, self._bounds
        for place in self._queue:
            events, size = events + place.events, size + place.size
            if events >= calls.events or 0 < calls.bytes <= size:
                return True
        return False

    @property
    def _room(self) -> tuple[int, int]:
        """The most events and bytes (0: no bound) of the places for the next call."""
        return self._bounds.events, self._bounds.bytes

    async def _handle(self, work: Gathered, deliver: Deliver) -> None:
        if not work.events:
            await anyio.lowlevel.checkpoint()
        while work.done < len(work.events):
            if work.done and self.delivery.share.closed:
                await self.delivery.share.next_slice(self.delivery)
            if self._halted:
                raise DeliveryInterrupted(f"handler {self.delivery.name!r}: stopped between calls")
            some = self._next_call(work)
            try:
                await deliver(some, work.handled)
            except BaseException:
                if work.handled.tokens and self.delivery.handler.position is not None:
                    work.note_part()
                raise
            work.done += len(some)
            if work.handled.tokens:
                work.dead_letters |= work.handled.dead_letters
                work.handled = Handled()
            self._note(work)
        self.watermark.finish(*work.places)

    def _next_call(self, work: Gathered) -> Sequence[ChangeEvent]:
        """The events of the next call: as many as fit, and no DDL with other events."""
        calls, events, begin = self._bounds, work.events, work.done
        most = len(events) if calls.whole_transactions else begin + self.delivery.size.most
        within = not calls.bytes or sum([place.size for place in work.places]) <= calls.bytes
        if begin == 0 and most >= len(events) and within and calls.on_ddl is None:
            return events
        if not isinstance(events, list):
            work.events = events = list(events)
        end, size = begin, 0
        for event in events[begin:most]:
            size += event.size
            alone = calls.on_ddl is not None and event.is_ddl
            if end > begin and (alone or (0 < calls.bytes < size and not calls.whole_transactions)):
                break
            end += 1
            if alone:
                break
        return events[begin:end]

    def _note(self, work: Gathered) -> None:
        if self.delivery.handler.position is not None:
            work.note(ddl_apart=self._bounds.on_ddl is not None)

    def _is_ddl_alone(self, events: Sequence[ChangeEvent]) -> bool:
        """Whether they are DDL of which the destination stores no position."""
        return self._bounds.on_ddl is not None and events[0].is_ddl

    def _select(self, work: Gathered) -> None:
        """Selects the events that the handler wants and does not have already."""
        stored = self.rows or any(place.already_stored for place in work.places)
        protected = self.delivery.handler.protection is not None
        if self.wants is None and self.before is None and not stored and not protected:
            slices = [place.slice for place in work.places if place.slice is not None]
            work.events = Events(slices)
            if self.delivery.handler.position is not None:
                work.parts = [Events([slice_]) for slice_ in slices]
            return
        work.parts = [self._wanted_of(place) for place in work.places]
        work.events = [event for part in work.parts for event in part]

    def _named(self, work: Gathered) -> dict[str, Any]:
        return named(work.events[work.done]) if work.done < len(work.events) else {}
