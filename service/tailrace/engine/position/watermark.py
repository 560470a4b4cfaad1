"""The watermark of a run: up to where all changes are handled, and the unfinished places after it.

Everything that moves the stream takes a place here, in the stream's order: a slice of events, or
a bookmark (the token of an empty reply), which is finished from the start. Handlers finish places
in any order. The watermark is after the last place that has nothing unfinished before it: bookmarks
never overtake unfinished work.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bson.timestamp import Timestamp

from tailrace.event import RawBatch, Slice
from tailrace.event.batch import LastEvent
from tailrace.model import Position, PositionKind, ResumeToken, SnapshotProgress


@dataclass(slots=True, eq=False)
class Place:
    """A slice that a number of handlers have ``unfinished``, or a bookmark.

    ``token`` and ``time``: the stream's position after the place; ``invalidated``: it has ended
    there. ``sink_digests``: for each handler with a position of its own, the digest of the last
    event that it has stored. ``taken``: how many of the unfinished handlers have accepted the
    events; when all have, the place releases its slice and keeps its ``last`` event.

    ``rows``: the events are existing documents, which are no position of the stream. ``snapshot``:
    the snapshot's progress after the place. ``already_stored``: by handler, how many of the
    first rows it has.
    """

    number: int
    slice: Slice | None
    unfinished: int
    events: int
    size: int
    taken: int = 0
    token: ResumeToken | None = None
    time: Timestamp | None = None
    invalidated: bool = False
    last: LastEvent | None = None
    sink_digests: Mapping[str, str] = field(default_factory=dict)
    rows: bool = False
    snapshot: SnapshotProgress | None = None
    already_stored: Mapping[str, int] = field(default_factory=dict)

    def note(self, handler: str, last: ResumeToken) -> None:
        """Notes the last event of this place that the handler's destination has stored."""
        self.sink_digests = {**self.sink_digests, handler: last.digest}


class Watermark:
    """The places of one run, which starts at the position ``start``.

    :attr:`events` counts the unhandled events, and :attr:`size` their bytes: the raw bytes of
    places, and what handlers hold of accepted events. :attr:`read_time`: up to where the stream was
    read; :attr:`handled_time`: up to where everything is handled (as far as the server told times).
    ``moved`` is called with the freed bytes whenever handlers open, accept or finish places.
    """

    def __init__(self, start: Position, moved: Callable[[int], None] = lambda freed: None) -> None:
        self.position = start
        self.events = 0
        self.size = 0
        self.read_time = self.handled_time = self._start_time = start.cluster_time
        self._moved = moved
        self.places: deque[Place] = deque()
        """The places that are not finished by all handlers, in the stream's order."""
        self._whole: deque[Place] = deque()
        self._next = 0
        self._held: dict[str, int] = {}

    @property
    def empty(self) -> bool:
        """Whether everything that was admitted is finished."""
        return not self.places

    @property
    def last_change(self) -> Timestamp | None:
        """The time of the last change that was read; ``None`` if it is not known."""
        for place in reversed(self.places):
            last = place.slice.last() if place.slice is not None else place.last
            if last is not None and not place.rows:
                return last.time
        at = self.position
        tokens = [at.event_token, *(progress.token for progress in at.beyond.values())]
        changes = [token for token in tokens if token is not None and not token.is_high_water]
        return max((time for token in changes if (time := token.cluster_time)), default=None)

    def begin_at(self, time: Timestamp) -> None:
        """Notes the time of the first event, if there is no token to continue from."""
        if self.position.token is None:
            started = self.position.started or time
            self.position = replace(self.position, cluster_time=time, started=started)

    def read(self, batch: RawBatch) -> None:
        """Notes that a reply was read; it may still wait for its places."""
        self.read_time = self._time_after(batch) or self.read_time

    def admit(
        self, batch: RawBatch, slices: Sequence[Slice], handlers: int, *, invalidated: bool = False
    ) -> list[Place]:
        """Takes a place for each slice of a reply; returns the places that handlers must finish."""
        time = self._time_after(batch)
        places = [self._append(slice_, handlers) for slice_ in slices]
        if places or batch.token is not None:
            last = places[-1] if places else self._append(None, 0)
            last.token, last.time = batch.token, time
        elif self.position.high_water is None and self.position.cluster_time is None:
            # No token and no event yet: a new run could start only at the first reply's time.
            self._append(None, 0).time = batch.operation_time
        if self.places:
            self.places[-1].invalidated = invalidated
        else:
            self.handled_time = time or self.handled_time
        if not (handlers and slices):
            self._advance()
            return []
        return places

    def admit_rows(
        self,
        slices: Sequence[Slice],
        handlers: int,
        time: Timestamp,
        progress: Callable[[int], SnapshotProgress],
    ) -> list[Place]:
        """Takes places for documents as of a time; ``progress(n)``: the snapshot's after ``n``.

        Returns the places that handlers must finish.
        """
        places = [self._append(slice_, handlers) for slice_ in slices]
        done = 0
        for place in places or [self._append(None, 0)]:
            done += place.events
            place.time, place.rows, place.snapshot = time, True, progress(done)
        if handlers and places:
            return places
        self._advance()
        return []

    def begin(self) -> None:
        """One handler has opened a place."""
        self._moved(0)

    def finish(self, *places: Place) -> None:
        """One handler is done with the places."""
        for place in places:
            place.unfinished -= 1
        freed = self._release()
        if places[0].unfinished == 0:
            freed += self._advance()
        self._moved(freed)

    def take(self, *places: Place) -> None:
        """One handler has accepted the events: it has a copy, but has not finished them."""
        for place in places:
            place.taken += 1
        self._moved(self._release())

    def commit(self, *places: Place) -> None:
        """One handler is done with places that it had accepted, as in :meth:`finish`."""
        for place in places:
            place.taken -= 1
        self.finish(*places)

    def hold(self, handler: str, size: int) -> None:
        """A handler now holds ``size`` bytes of the events that it has accepted."""
        less = self._held.get(handler, 0) - size
        self._held[handler] = size
        self.size -= less
        self._moved(less)

    def abandon(self) -> None:
        """The run is over: unfinished places will be read again."""
        freed, self.size, self.events = self.size, 0, 0
        self._moved(freed)

    def _time_after(self, batch: RawBatch) -> Timestamp | None:
        time = batch.token.cluster_time if batch.token is not None else None
        if time is None and (last := batch.last) is not None:
            time = last.cluster_time
        elif time is None and (self._next or self._start_time is None):
            # An empty reply whose token tells no time: the server found nothing up to now. But the
            # reply that opens a stream never has events.
            time = batch.operation_time
        return time

    def _append(self, slice_: Slice | None, handlers: int) -> Place:
        events, size = (len(slice_), slice_.size) if slice_ is not None else (0, 0)
        place = Place(self._next, slice_, handlers, events, size)
        self._next += 1
        self.places.append(place)
        if handlers:
            self._whole.append(place)
        self.events += place.events
        self.size += place.size
        return place

    def _release(self) -> int:
        """Releases slices that all unfinished handlers have accepted; returns the freed bytes."""
        freed, whole = 0, self._whole
        # In the stream's order: handled events after an unhandled one may have to be noted.
        while whole and whole[0].taken >= whole[0].unfinished:
            place = whole.popleft()
            if place.unfinished and place.slice is not None:
                freed += place.size
                place.last = place.slice.last()
                place.slice, place.size = None, 0
        self.size -= freed
        return freed

    def _advance(self) -> int:
        """Moves past the first places that all handlers have finished; returns the freed bytes."""
        places, freed = self.places, 0
        last_event: Place | None = None
        last: Place | None = None
        noted: dict[str, str] = {}
        position = self.position
        while places and places[0].unfinished == 0:
            place = places.popleft()
            self.handled_time = place.time or self.handled_time
            self.events -= place.events
            freed += place.size
            if place.snapshot is not None:
                position = replace(position, snapshot=place.snapshot)
            if not place.rows:
                last = place
                if place.events:
                    last_event = place
                    noted |= place.sink_digests
        self.size -= freed
        if last_event is not None:
            event = last_event.slice.last() if last_event.slice is not None else last_event.last
            assert event is not None  # noqa: S101 - for the type checker
            ended = last_event.invalidated
            position = after_event(position, event, noted, last_event.token, invalidated=ended)
        if last is not None and last is not last_event:
            position = position.after_bookmark(last.token, last.time, invalidated=last.invalidated)
        if position.started is None:
            position = replace(position, started=position.cluster_time)
        self.position = position.without_passed(noted) if position.beyond else position
        return freed


def after_event(
    position: Position,
    event: LastEvent,
    noted: Mapping[str, str],
    token: ResumeToken | None = None,
    *,
    invalidated: bool = False,
) -> Position:
    """The position when everything up to an event is handled.

    ``token``: where the stream stood after the event, or ended.
    """
    invalidated = invalidated or event.operation == "invalidate"
    return replace(
        position,
        kind=PositionKind.INVALIDATE if invalidated else PositionKind.EVENT,
        event_token=event.token,
        high_water=token or event.token,
        cluster_time=event.time or position.cluster_time,
        sink_digests={**position.sink_digests, **noted} if noted else position.sink_digests,
    )
