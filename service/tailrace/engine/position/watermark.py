"""The watermark of a run: which changes have been read but not yet handled, and what lies before.

Everything that moves the stream takes a place here, in the stream's order: a chunk of events, or
a bookmark (the token of an empty reply), which is born finished. Handlers finish places in any
order. The watermark is behind the last place with nothing unfinished before it: bookmarks never
overtake unfinished work.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bson.timestamp import Timestamp

from tailrace.engine.position.position import Position
from tailrace.event import Batch, Chunk
from tailrace.event.batch import LastEvent
from tailrace.model import ResumeToken, SnapshotProgress


@dataclass(slots=True, eq=False)
class Place:
    """A chunk on its way through ``unfinished`` handlers, or a bookmark.

    ``token`` and ``time`` are where the stream stands after it, ``invalidated`` whether it has
    ended there. ``owned`` has the digest of the last event that each handler with a position of its
    own has stored. ``taken`` of the unfinished handlers have taken the events in; once all have,
    the place gives up its chunk and keeps its ``last`` event.

    The events of ``rows`` are documents that were there before: they are no position of the stream.
    ``snapshot`` is how far their snapshot is after the place; of the first of them, handlers
    ``had`` so many already.
    """

    number: int
    chunk: Chunk | None
    unfinished: int
    events: int
    size: int
    taken: int = 0
    token: ResumeToken | None = None
    time: Timestamp | None = None
    invalidated: bool = False
    last: LastEvent | None = None
    owned: Mapping[str, str] = field(default_factory=dict)
    rows: bool = False
    snapshot: SnapshotProgress | None = None
    had: Mapping[str, int] = field(default_factory=dict)

    def note(self, handler: str, last: ResumeToken) -> None:
        """The handler's destination has stored an event of this place, and stands there."""
        self.owned = {**self.owned, handler: last.digest}


class Watermark:
    """The places of one run, which begins at the position ``start``.

    :attr:`events` counts what is not handled, and :attr:`size` its bytes: raw ones of places, and
    what handlers hold of those that they have taken in. :attr:`read_time` is how far the stream was
    read, :attr:`handled_time` how far everything is handled, as far as the server told times.
    ``moved`` is called with the bytes that left whenever handlers took up or finished something.
    """

    def __init__(self, start: Position, moved: Callable[[int], None] = lambda freed: None) -> None:
        self.position = start
        self.events = 0
        self.size = 0
        self.read_time = self.handled_time = self._start_time = start.cluster_time
        self._moved = moved
        self.places: deque[Place] = deque()
        """What is not handled by everybody, in the stream's order."""
        self._whole: deque[Place] = deque()
        self._next = 0
        self._held: dict[str, int] = {}

    @property
    def empty(self) -> bool:
        """Whether everything that was admitted is finished."""
        return not self.places

    def begin_at(self, time: Timestamp) -> None:
        """Notes when the first event happened, where nothing else is known to go on from."""
        if not self.position.has_token:
            self.position = replace(self.position, cluster_time=time)

    def read(self, batch: Batch) -> None:
        """A reply was read; it may wait for its places."""
        self.read_time = self._time_behind(batch) or self.read_time

    def admit(
        self, batch: Batch, chunks: Sequence[Chunk], handlers: int, *, invalidated: bool = False
    ) -> list[Place]:
        """Takes a place for each chunk of a reply; returns those that the handlers must finish."""
        time = self._time_behind(batch)
        places = [self._append(chunk, handlers) for chunk in chunks]
        if places or batch.token is not None:
            last = places[-1] if places else self._append(None, 0)
            last.token, last.time = batch.token, time
        elif self.position.high_water is None and self.position.cluster_time is None:
            # No token and no event yet: the time of the first reply is all there is to go on from.
            self._append(None, 0).time = batch.operation_time
        if self.places:
            self.places[-1].invalidated = invalidated
        else:
            self.handled_time = time or self.handled_time
        if not (handlers and chunks):
            self._advance()
            return []
        return places

    def admit_rows(
        self,
        chunks: Sequence[Chunk],
        handlers: int,
        time: Timestamp,
        progress: Callable[[int], SnapshotProgress],
    ) -> list[Place]:
        """Takes places for documents as of a time; ``progress(n)`` is theirs after ``n`` of them.

        Returns those that ``handlers`` handlers must finish.
        """
        places = [self._append(chunk, handlers) for chunk in chunks]
        done = 0
        for place in places or [self._append(None, 0)]:
            done += place.events
            place.time, place.rows, place.snapshot = time, True, progress(done)
        if handlers and places:
            return places
        self._advance()
        return []

    def begin(self) -> None:
        """One handler has taken a place up."""
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
        """One handler takes the events in: it has a copy, and is not done with them."""
        for place in places:
            place.taken += 1
        self._moved(self._release())

    def commit(self, *places: Place) -> None:
        """A handler that took them in is done with the places, as in :meth:`finish`."""
        for place in places:
            place.taken -= 1
        self.finish(*places)

    def hold(self, handler: str, size: int) -> None:
        """What a handler has of what it took in is so many bytes now."""
        less = self._held.get(handler, 0) - size
        self._held[handler] = size
        self.size -= less
        self._moved(less)

    def abandon(self) -> None:
        """The run is over: what is not finished will be read again."""
        freed, self.size, self.events = self.size, 0, 0
        self._moved(freed)

    def _time_behind(self, batch: Batch) -> Timestamp | None:
        time = batch.token.cluster_time if batch.token is not None else None
        if time is None and (last := batch.last) is not None:
            time = last.cluster_time
        elif time is None and (self._next or self._start_time is None):
            # An empty reply whose token tells no time: the server found nothing up to now. But the
            # reply that opens a stream has no events, whatever there is.
            time = batch.operation_time
        return time

    def _append(self, chunk: Chunk | None, handlers: int) -> Place:
        events, size = (len(chunk), chunk.size) if chunk is not None else (0, 0)
        place = Place(self._next, chunk, handlers, events, size)
        self._next += 1
        self.places.append(place)
        if handlers:
            self._whole.append(place)
        self.events += place.events
        self.size += place.size
        return place

    def _release(self) -> int:
        """Gives up the bytes that all unfinished handlers have taken in; returns how many."""
        freed, whole = 0, self._whole
        # In the stream's order: after an unhandled event, the handled ones may have to be noted.
        while whole and whole[0].taken >= whole[0].unfinished:
            place = whole.popleft()
            if place.unfinished and place.chunk is not None:
                freed += place.size
                place.last = place.chunk.last()
                place.chunk, place.size = None, 0
        self.size -= freed
        return freed

    def _advance(self) -> int:
        """Moves to the end of the places that everybody has finished; returns their bytes."""
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
                    noted |= place.owned
        self.size -= freed
        if last_event is not None:
            event = last_event.chunk.last() if last_event.chunk is not None else last_event.last
            assert event is not None  # noqa: S101 - for the type checker
            ended = last_event.invalidated
            position = position.behind_event(event, noted, last_event.token, invalidated=ended)
        if last is not None and last is not last_event:
            position = position.behind_bookmark(last.token, last.time, invalidated=last.invalidated)
        self.position = position.without_passed(noted) if position.ahead else position
        return freed
