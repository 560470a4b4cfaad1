"""The watermark of a subscription: up to where all changes are handled, and the places after it.

Everything that moves the stream takes a place here, in the stream's order: a slice of events, or
a bookmark (the token of an empty reply), which is finished from the start. The handler finishes
places in any order. The watermark is after the last place that has nothing unfinished before it:
bookmarks never overtake unfinished work.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from bson.timestamp import Timestamp

from tailrace.engine.position.cluster_time import later
from tailrace.engine.position.place import Hold, Place
from tailrace.event import Slice
from tailrace.event.batch import LastEvent
from tailrace.model import Position, PositionKind, Progress, ResumeToken, SnapshotProgress
from tailrace.observe.latency import Latency


class Watermark:
    """The places of one subscription in one run, which starts at the position ``start``.

    :attr:`events` counts the unhandled events, and :attr:`size` their bytes: the raw bytes of
    places, and what the handler holds of accepted events. :attr:`handled_time`: up to where
    everything is handled (as far as the server told times). ``moved`` is called with the freed
    bytes whenever the handler opens, accepts or finishes places. ``handles`` is false where no
    handler gets the places. ``floor``: what the handler has, if the run reads from further back.
    ``near``: whether the run's handlers are all near each other.
    """

    def __init__(
        self,
        start: Position,
        moved: Callable[[int], None] = lambda freed: None,
        *,
        handles: bool = True,
        floor: Progress | None = None,
        near: Callable[[], bool] = lambda: True,
    ) -> None:
        self.position = start
        self.events = 0
        self.size = 0
        self.handled_time = start.cluster_time
        self.places: deque[Place] = deque()
        """The places that are not finished, in the stream's order."""
        self.near = near
        self.latency: Latency | None = None
        """Counts what the handler has handled."""
        self.follows = False
        """Whether the position is one that this run's stream has given."""
        self._handles = handles
        self._floor = floor
        self._moved = moved
        self._whole: deque[Place] = deque()
        self._next = 0
        self._held = 0

    @property
    def empty(self) -> bool:
        """Whether everything that was admitted is finished."""
        return not self.places

    @property
    def is_past(self) -> bool:
        """Whether the run has read past everything that the handler had when it began."""
        return self._floor is None

    @property
    def last_change(self) -> Timestamp | None:
        """The time of the last change that was read; ``None`` if it is not known."""
        for place in reversed(self.places):
            last = place.slice.last() if place.slice is not None else place.last
            if last is not None and not place.rows:
                return last.time
        token = self.position.event_token
        return None if token is None or token.is_high_water else token.cluster_time

    def begin_at(self, time: Timestamp) -> None:
        """Notes the time of the first event, if there is no token to continue from."""
        if self.position.token is None:
            started = self.position.started or time
            self.position = replace(self.position, cluster_time=time, started=started)

    def admit(
        self,
        slices: Sequence[Slice],
        token: ResumeToken | None,
        time: Timestamp | None,
        *,
        otherwise: Timestamp | None = None,
        holds: Sequence[Hold] = (),
        invalidated: bool = False,
    ) -> list[Place]:
        """Takes a place for each slice of a reply; returns those that the handler must finish.

        ``token`` and ``time``: the stream's position after the reply; ``otherwise``: the time of
        the reply, for a stream that has told neither a token nor a time.
        """
        places = self._append_all(slices, holds)
        if places or token is not None:
            last = places[-1] if places else self._append(None, None)
            last.token, last.time = token, time
        elif self.position.high_water is None and self.position.cluster_time is None:
            # No token and no event yet: a new run could start only at the first reply's time.
            self._append(None, None).time = otherwise
        if self.places:
            self.places[-1].invalidated = invalidated
        else:
            self.handled_time = later(self.handled_time, time)
        if not (self._handles and slices):
            self._advance()
            return []
        return places

    def admit_rows(
        self,
        slices: Sequence[Slice],
        time: Timestamp,
        progress: Callable[[int], SnapshotProgress],
        *,
        already_stored: int = 0,
        holds: Sequence[Hold] = (),
    ) -> list[Place]:
        """Takes places for documents as of a time; ``progress(n)``: the snapshot's after ``n``.

        ``already_stored``: how many of the first ones the handler has. Returns the places that the
        handler must finish.
        """
        places = self._append_all(slices, holds)
        done = 0
        for place in places or [self._append(None, None)]:
            place.already_stored = max(already_stored - done, 0)
            done += place.events
            place.time, place.rows, place.snapshot = time, True, progress(done)
        if self._handles and places:
            return places
        self._advance()
        return []

    def begin(self) -> None:
        """The handler has opened a place."""
        self._moved(0)

    def finish(self, *places: Place) -> None:
        """The handler is done with the places."""
        for place in places:
            place.finished = True
            if self.latency is not None:
                place.observe(self.latency)
        freed = self._release()
        if self.places and self.places[0].finished:
            freed += self._advance()
        self._moved(freed)

    def take(self, *places: Place) -> None:
        """The handler has accepted the events: it has a copy, but has not finished them."""
        for place in places:
            place.taken = True
        self._moved(self._release())

    def hold(self, size: int) -> None:
        """The handler now holds ``size`` bytes of the events that it has accepted."""
        less, self._held = self._held - size, size
        self.size -= less
        self._moved(less)

    def drop_after(self, number: int) -> None:
        """Forgets the places after the one with this number: they will be read again."""
        freed = 0
        while self.places and self.places[-1].number > number:
            place = self.places.pop()
            self.events -= place.events
            if self._whole and self._whole[-1] is place:
                self._whole.pop()
            freed += self._let_go(place)
        self._moved(freed)

    def abandon(self) -> None:
        """The run is over: unfinished places will be read again."""
        freed = sum([self._let_go(place) for place in self.places]) + self._held
        self._whole.clear()
        self.size = self.events = self._held = 0
        self._moved(freed)

    def _append_all(self, slices: Sequence[Slice], holds: Sequence[Hold]) -> list[Place]:
        if not holds:
            return [self._append(each, Hold(each.size, 1)) for each in slices]
        return [self._append(each, hold) for each, hold in zip(slices, holds, strict=True)]

    def _append(self, slice_: Slice | None, hold: Hold | None) -> Place:
        events, size = (len(slice_), slice_.size) if slice_ is not None else (0, 0)
        finished = slice_ is None or not self._handles
        place = Place(self._next, slice_, events, size, finished, wanted=events)
        self._next += 1
        self.places.append(place)
        if not finished:
            place.hold = hold
            self._whole.append(place)
            self.size += size
        self.events += events
        return place

    def _release(self) -> int:
        """Releases slices that the handler has accepted; returns the freed bytes."""
        freed, whole = 0, self._whole
        # In the stream's order: handled events after an unhandled one may have to be noted.
        while whole and (whole[0].taken or whole[0].finished):
            place = whole.popleft()
            if not place.finished and place.slice is not None:
                freed += self._let_go(place)
                place.last, place.changed_at = place.slice.last(), place.slice.changed_at()
                place.slice = None
        return freed

    def _let_go(self, place: Place) -> int:
        hold, place.hold = place.hold, None
        if hold is None:
            return 0
        self.size -= place.size
        return hold.release()

    def _advance(self) -> int:
        """Moves past the first places that are finished; returns the freed bytes."""
        places, freed = self.places, 0
        last_event: Place | None = None
        last: Place | None = None
        stored, position = "", self.position
        while places and places[0].finished:
            place = places.popleft()
            self.handled_time = later(self.handled_time, place.time)
            self.events -= place.events
            freed += self._let_go(place)
            if place.snapshot is not None:
                position = replace(position, snapshot=place.snapshot)
            if not place.rows:
                last = place
                if place.events:
                    last_event = place
                    stored = place.stored or stored
        if last_event is not None:
            event = last_event.slice.last() if last_event.slice is not None else last_event.last
            assert event is not None  # noqa: S101 - for the type checker
            if self._passes(event.token, event.time):
                self.follows = True
                ended = last_event.invalidated
                position = after_event(position, event, stored, last_event.token, invalidated=ended)
            else:
                last = None
        if last is not None and last is not last_event and self._passes(last.token, last.time):
            self.follows = True
            position = position.after_bookmark(last.token, last.time, invalidated=last.invalidated)
        if position.started is None:
            position = replace(position, started=position.cluster_time)
        self.position = position.without_passed() if position.handled else position
        return freed

    def _passes(self, token: ResumeToken | None, time: Timestamp | None) -> bool:
        """Whether it is not before the last event that the handler had when the run began."""
        floor = self._floor
        if floor is None:
            return True
        at_it = token is None if floor.token is None else floor.token.is_at(token)
        if at_it or floor.covers(token, time) is False:
            self._floor = None
        return self._floor is None


def after_event(
    position: Position,
    event: LastEvent,
    stored: str = "",
    token: ResumeToken | None = None,
    *,
    invalidated: bool = False,
) -> Position:
    """The position when everything up to an event is handled.

    ``token``: where the stream stood after the event, or ended. ``stored``: the digest of the last
    event that the destination has stored, if it is a new one.
    """
    invalidated = invalidated or event.operation == "invalidate"
    return replace(
        position,
        kind=PositionKind.INVALIDATE if invalidated else PositionKind.EVENT,
        event_token=event.token,
        high_water=token or event.token,
        cluster_time=event.time or position.cluster_time,
        stored=stored or position.stored,
        chosen=False,
    )
