"""The places in line: which changes have been read but not yet handled, and where
that leaves the scope.

Everything that moves the stream takes a place here, in the stream's order: a chunk of events, or
a bookmark (the token of an empty reply), which is born finished. Handlers finish places in any
order. The watermark is behind the last place with nothing unfinished before it: bookmarks never
overtake unfinished work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bson.timestamp import Timestamp

from tailrace.event import Batch, Chunk
from tailrace.event.batch import LastEvent
from tailrace.model import Checkpoint, CheckpointKind, Progress, ResumeToken, StartPoint
from tailrace.model.checkpoint import progress


@dataclass(frozen=True, slots=True)
class Position:
    """A position with everything before it handled: what a checkpoint remembers.

    ``owned`` and ``ahead`` are as in :class:`tailrace.model.Checkpoint`.
    """

    kind: CheckpointKind
    event_token: ResumeToken | None
    high_water: ResumeToken | None
    cluster_time: Timestamp | None
    owned: Mapping[str, str] = field(default_factory=dict)
    ahead: Mapping[str, Progress] = field(default_factory=dict)

    @property
    def progress(self) -> Progress:
        """What every handler has."""
        return progress(self.kind, self.event_token, self.high_water, self.cluster_time)

    @classmethod
    def behind(cls, checkpoint: Checkpoint | None, start: StartPoint) -> Position:
        """Where a run stands before its first reply.

        Started after a token, it goes on by ``startAfter`` only until an event comes: the first
        reply has that very token as its position, and it may be an invalidate's.
        """
        kind = checkpoint.kind if checkpoint is not None else CheckpointKind.IDLE
        if start.start_after is not None:
            kind = CheckpointKind.INVALIDATE
        if checkpoint is None:
            return cls(kind, None, None, start.at_operation_time)
        return cls(
            kind,
            checkpoint.event_token,
            checkpoint.high_water,
            checkpoint.cluster_time,
        )


class Place:
    """A chunk on its way through ``unfinished`` handlers, or a bookmark.

    ``number`` grows by one a place. It holds ``events`` events of ``size`` raw bytes. ``token`` is
    where the stream stands behind it, and ``invalidated`` whether it has ended there, so that only
    ``startAfter`` goes on. ``owned`` is where the destinations of handlers that own their position
    are with what they got from it (:class:`Position`). ``taken`` of the unfinished handlers
    have taken the events in; once all have, the place is without its chunk, has no size, and knows
    its ``last`` event.
    """

    __slots__ = (
        "chunk",
        "events",
        "invalidated",
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
        self.invalidated = False
        self.last: LastEvent | None = None
        self.owned: Mapping[str, str] = {}

    def note(self, handler: str, last: ResumeToken) -> None:
        """The handler's destination has stored an event of this place, and stands there."""
        self.owned = {**self.owned, handler: last.digest}


class Watermark:
    """The places of one run, in the stream\'s order.

    It begins at the position ``start``. :attr:`position` has everything before it handled;
    :attr:`events` counts what is not, and :attr:`size` its bytes: raw ones of whole places, and
    what handlers hold of those that they have taken in.
    """

    def __init__(self, start: Position) -> None:
        self.position = start
        self.events = 0
        self.size = 0
        self._places: deque[Place] = deque()
        self._whole: deque[Place] = deque()
        self._takes = False
        self._next = 0
        self._held: dict[str, int] = {}

    def begin_at(self, time: Timestamp) -> None:
        """Notes when the first event happened, where nothing else is known to go on from."""
        if self.position.high_water is None and self.position.event_token is None:
            self.position = replace(self.position, cluster_time=time)

    def admit(
        self, batch: Batch, chunks: Sequence[Chunk], handlers: int, *, invalidated: bool = False
    ) -> list[Place]:
        """Takes places for a reply, one for each of the chunks that it was cut into.

        ``invalidated`` is whether the stream has ended with it. Returns those that ``handlers``
        handlers must finish.
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
        elif not chunks and self.position.high_water is None and self.position.cluster_time is None:
            # No token and no event yet: the time of the first reply is all there is to go on from.
            self._take(None, None, batch.operation_time, 0)
        if self._places:
            self._places[-1].invalidated = invalidated
        if not (handlers and chunks):
            self._advance()
            return []
        return places

    def finish(self, *places: Place) -> int:
        """One handler is done with the places; returns the bytes that left the line by it."""
        for place in places:
            place.unfinished -= 1
        freed = self._let_go() if self._takes else 0
        return freed + self._advance() if places[0].unfinished == 0 else freed

    def take(self, *places: Place) -> int:
        """One handler takes the events in, and is not done with them: it has them by itself.

        Returns the bytes that nobody needs any more.
        """
        self._takes = True
        for place in places:
            place.taken += 1
        return self._let_go()

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

    def _let_go(self) -> int:
        """Gives bytes up that every handler which is not done has taken in; returns how many.

        In the line's order: behind events that a handler has not handled, those that it has may
        still have to be noted (:mod:`tailrace.engine.position.final_position`).
        """
        freed = 0
        while self._whole and self._whole[0].taken >= self._whole[0].unfinished:
            place = self._whole.popleft()
            if place.unfinished and place.chunk is not None:
                freed += place.size
                place.last = place.chunk.last()
                place.chunk, place.size = None, 0
        self.size -= freed
        return freed

    @property
    def places(self) -> Iterable[Place]:
        """What is not handled by everybody, in the stream's order."""
        return self._places

    @property
    def empty(self) -> bool:
        """Whether everything that was admitted is finished."""
        return not self._places

    def _take(
        self, chunk: Chunk | None, token: ResumeToken | None, time: Timestamp | None, handlers: int
    ) -> Place:
        place = Place(self._next, chunk, token, time, handlers)
        self._next += 1
        self._places.append(place)
        if handlers:
            self._whole.append(place)
        return place

    def _advance(self) -> int:
        places, freed = self._places, 0
        last_event: Place | None = None
        last: Place | None = None
        noted: dict[str, str] = {}
        while places and places[0].unfinished == 0:
            last = places.popleft()
            if last.events:
                if self._whole and self._whole[0] is last:
                    self._whole.popleft()
                last_event = last
                self.events -= last.events
                freed += last.size
                noted |= last.owned
        self.size -= freed
        if last_event is not None:
            event = last_event.chunk.last() if last_event.chunk is not None else last_event.last
            assert event is not None  # noqa: S101 - for the type checker
            self.position = behind_event(self.position, event, noted, last_event)
        if last is not None and last is not last_event:
            self.position = _behind_bookmark(self.position, last)
        if self.position.ahead and last is not None:
            self._drop_passed(noted)
        return freed

    def _drop_passed(self, noted: Mapping[str, str]) -> None:
        """What handlers had before is known no more apart, once everybody has it."""
        at = self.position.progress
        ahead = {
            name: progress
            for name, progress in self.position.ahead.items()
            if name not in noted and not progress.is_passed_by(at.token, at.cluster_time)
        }
        if len(ahead) < len(self.position.ahead):
            self.position = replace(self.position, ahead=ahead)


def behind_event(
    position: Position, event: LastEvent, noted: Mapping[str, str], place: Place | None = None
) -> Position:
    """The position behind an event: the last of the ``place``, if one is given."""
    kind, behind = CheckpointKind.EVENT, place.token if place is not None else None
    if (place is not None and place.invalidated) or event.operation == "invalidate":
        kind = CheckpointKind.INVALIDATE
    owned = {**position.owned, **noted} if noted else position.owned
    high_water = behind or event.token
    time = event.time or position.cluster_time
    return Position(kind, event.token, high_water, time, owned, position.ahead)


def _behind_bookmark(position: Position, place: Place) -> Position:
    """A bookmark moves the position, unless it is known to lie before it (field notes, 16)."""
    token = place.token
    if token is None:
        known = position.high_water is not None or position.cluster_time is not None
        return position if known else replace(position, cluster_time=place.time)
    # Until an event comes, a stream behind an invalidate goes on by `startAfter` only.
    invalidated = place.invalidated or position.kind is CheckpointKind.INVALIDATE
    if position.high_water is not None and (
        token == position.high_water or token.precedes(position.high_water)
    ):
        return replace(position, kind=CheckpointKind.INVALIDATE) if invalidated else position
    kind = CheckpointKind.INVALIDATE if invalidated else CheckpointKind.IDLE
    time = token.cluster_time or position.cluster_time
    return replace(position, kind=kind, high_water=token, cluster_time=time)
