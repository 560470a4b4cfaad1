"""The places in line: which changes have been read but not yet handled, and the mark behind them.

Everything that moves the stream takes a place here, in the stream's order: a chunk of events, or
a bookmark (the token of an empty reply), which is born finished. Handlers finish places in any
order. The watermark is behind the last place with nothing unfinished before it: bookmarks never
overtake unfinished work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bson.timestamp import Timestamp

from service.model import Batch, Checkpoint, CheckpointKind, Chunk, ResumeToken, StartPoint
from service.model.batch import LastEvent


@dataclass(frozen=True, slots=True)
class Mark:
    """A position with everything before it handled: what a checkpoint remembers.

    ``owned`` is as in :class:`service.model.Checkpoint`.
    """

    kind: CheckpointKind
    event_token: ResumeToken | None
    high_water: ResumeToken | None
    cluster_time: Timestamp | None
    owned: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def behind(cls, checkpoint: Checkpoint | None, start: StartPoint) -> Mark:
        """Where a life stands before its first reply."""
        if checkpoint is None:
            return cls(CheckpointKind.IDLE, None, None, start.at_operation_time)
        return cls(
            checkpoint.kind,
            checkpoint.event_token,
            checkpoint.high_water,
            checkpoint.cluster_time,
            checkpoint.owned,
        )


class Place:
    """A chunk on its way through ``unfinished`` handlers, or a bookmark.

    ``number`` grows by one a place. It holds ``events`` events of ``size`` raw bytes. ``token`` is
    where the stream stands behind it. ``owned`` is what handlers that own their position got last
    from this place (:class:`Mark`). ``taken`` of the unfinished handlers have taken the events in;
    once all have, the place is without its chunk, has no size, and knows its ``last`` event.
    """

    __slots__ = (
        "chunk",
        "events",
        "last",
        "number",
        "owned",
        "size",
        "taken",
        "time",
        "token",
        "unfinished",
    )

    def __init__(
        self,
        number: int,
        chunk: Chunk | None,
        token: ResumeToken | None,
        time: Timestamp | None,
        unfinished: int,
    ) -> None:
        self.number = number
        self.chunk = chunk
        self.events, self.size = (len(chunk), chunk.size) if chunk is not None else (0, 0)
        self.token = token
        self.time = time
        self.unfinished = unfinished
        self.taken = 0
        self.last: LastEvent | None = None
        self.owned: dict[str, str] | None = None


class InFlight:
    """The line of one scope.

    ``start`` is the checkpoint's mark. :attr:`mark` is the watermark; :attr:`events` counts what is
    not handled yet, and :attr:`size` its bytes: raw ones of whole places, and what handlers hold of
    those that they have taken in.
    """

    def __init__(self, start: Mark) -> None:
        self.mark = start
        self.events = 0
        self.size = 0
        self._line: deque[Place] = deque()
        self._next = 0
        self._held: dict[str, int] = {}

    def begin_at(self, time: Timestamp) -> None:
        """Notes when the first event happened, where nothing else is known to go on from."""
        if self.mark.high_water is None and self.mark.event_token is None:
            self.mark = replace(self.mark, cluster_time=time)

    def admit(self, batch: Batch, chunks: Sequence[Chunk], handlers: int) -> list[Place]:
        """Takes places for a reply, one for each of the chunks that it was cut into.

        Returns those that ``handlers`` handlers must finish.
        """
        places = []
        for index, chunk in enumerate(chunks):
            behind = batch.token if index == len(chunks) - 1 else None
            place = self._take(chunk, behind, None, handlers)
            places.append(place)
            self.events += place.events
            self.size += place.size
        if not chunks and batch.token is not None:
            self._take(None, batch.token, None, 0)
        elif not chunks and self.mark.high_water is None and self.mark.cluster_time is None:
            # No token and no event yet: the time of the first reply is all there is to go on from.
            self._take(None, None, batch.operation_time, 0)
        if not (handlers and chunks):
            self._advance()
            return []
        return places

    def finish(self, *places: Place) -> int:
        """One handler is done with the places; returns the bytes that left the line by it."""
        freed = 0
        for place in places:
            place.unfinished -= 1
            if place.taken:
                freed += self._let_go(place)
        return freed + self._advance() if places[0].unfinished == 0 else freed

    def take(self, *places: Place) -> int:
        """One handler takes the events in, and is not done with them: it has them by itself.

        Returns the bytes that nobody needs any more.
        """
        freed = 0
        for place in places:
            place.taken += 1
            freed += self._let_go(place)
        return freed

    def commit(self, *places: Place) -> int:
        """A handler that took them in is done with the places, as in :meth:`finish`."""
        for place in places:
            place.taken -= 1
        return self.finish(*places)

    def hold(self, handler: str, size: int) -> int:
        """What a handler has of what it took in is so many bytes now. Returns how many less."""
        less = self._held.get(handler, 0) - size
        self._held[handler] = size
        self.size -= less
        return less

    def _let_go(self, place: Place) -> int:
        """Gives the bytes up, where every handler that is not done has taken them in."""
        if place.chunk is None or place.taken < place.unfinished:
            return 0
        freed, place.last = place.size, place.chunk.last()
        place.chunk, place.size = None, 0
        self.size -= freed
        return freed

    @property
    def empty(self) -> bool:
        """Whether everything that was admitted is finished."""
        return not self._line

    def _take(
        self, chunk: Chunk | None, token: ResumeToken | None, time: Timestamp | None, handlers: int
    ) -> Place:
        place = Place(self._next, chunk, token, time, handlers)
        self._next += 1
        self._line.append(place)
        return place

    def _advance(self) -> int:
        line, freed = self._line, 0
        last_event: Place | None = None
        last: Place | None = None
        owned = self.mark.owned
        while line and line[0].unfinished == 0:
            last = line.popleft()
            if last.events:
                last_event = last
                self.events -= last.events
                freed += last.size
                if last.owned is not None:
                    owned = {**owned, **last.owned}
        self.size -= freed
        if last_event is not None:
            self.mark = _behind_event(self.mark, last_event, owned)
        if last is not None and last is not last_event:
            self.mark = _behind_bookmark(self.mark, last)
        return freed


def _behind_event(mark: Mark, place: Place, owned: Mapping[str, str]) -> Mark:
    event = place.chunk.last() if place.chunk is not None else place.last
    assert event is not None  # noqa: S101 - for the type checker
    kind = CheckpointKind.EVENT
    if event.operation == "invalidate":
        kind = CheckpointKind.INVALIDATE
    time = event.cluster_time or (event.token.cluster_time if event.token else None)
    high_water = place.token or event.token
    return Mark(kind, event.token, high_water, time or mark.cluster_time, owned)


def _behind_bookmark(mark: Mark, place: Place) -> Mark:
    """A bookmark moves the position, unless it is known to lie before it (field notes, 16)."""
    token = place.token
    if token is None:
        known = mark.high_water is not None or mark.cluster_time is not None
        return mark if known else replace(mark, cluster_time=place.time)
    if mark.high_water is not None and (
        token == mark.high_water or token.precedes(mark.high_water)
    ):
        return mark
    # Until an event comes, a stream behind an invalidate goes on by `startAfter` only.
    invalidated = mark.kind is CheckpointKind.INVALIDATE
    kind = CheckpointKind.INVALIDATE if invalidated else CheckpointKind.IDLE
    time = token.cluster_time or mark.cluster_time
    return replace(mark, kind=kind, high_water=token, cluster_time=time)
