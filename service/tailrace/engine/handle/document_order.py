"""Which event of a handler may run next: in order per document, and barriers alone.

An event whose document key is busy waits for the one that runs. An event without a document key
(drop, rename, invalidate, other DDL) is a barrier: it runs once everything before it is finished,
and everything after it waits. Nothing here waits or calls a handler;
:mod:`tailrace.engine.handle.document_lanes` does.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from tailrace.engine.handle.lane import Lane, Unhandled, tokens
from tailrace.engine.position.watermark import Place
from tailrace.event import ChangeEvent

MOST_WAITING = 256
"""Events that wait for a busy document before no further chunk is opened: else one hot document
would draw all that is in flight into memory, decoded, and a stop would have to drain it."""


@dataclass(slots=True, eq=False)
class OpenPlace:
    """A place whose events are being handled, and those of them that are not."""

    place: Place
    left: set[ChangeEvent]


Item = tuple[ChangeEvent, OpenPlace, Hashable | None]
"""An event that runs, its place, and the key that it keeps busy (``None``: it is a barrier)."""


@dataclass(eq=False)
class DocumentOrder(Lane):
    """The events of one handler, in the order in which they may run."""

    _behind: int = 0
    """Events that wait for a busy document."""
    _chunk: Iterator[ChangeEvent] = field(default_factory=lambda: iter(()))
    _open: OpenPlace | None = None
    _all_open: dict[int, OpenPlace] = field(default_factory=dict)
    _busy: dict[Hashable, deque[Item] | None] = field(default_factory=dict)
    _active: int = 0
    _barrier: Item | None = None
    """One that waits, or runs: nothing else is taken."""

    def unhandled(self) -> Unhandled:
        """The events of opened places that are not handled."""
        return {number: tokens(opened.left) for number, opened in self._all_open.items()}

    def _take(self) -> Item | None:
        """The next event that may run now; none after a failure."""
        while self._barrier is None and self._failure is None:
            event = next(self._chunk, None)
            if event is None:
                if not self._open_next():
                    return None
                continue
            assert self._open is not None  # noqa: S101 - for the type checker
            if self.wants is not None and not self.wants(event):
                self._open.left.discard(event)
                if not self._open.left:
                    self._finish(self._open)
                continue
            key = event.key
            item = (event, self._open, key)
            if key is None:
                self._barrier = item
            elif key not in self._busy:
                self._busy[key] = None
                self._active += 1
                return item
            else:
                behind = self._busy[key]
                if behind is None:
                    behind = self._busy[key] = deque()
                behind.append(item)
                self._behind += 1
        if self._active or self._failure is not None:
            return None  # active: the events before the barrier, or it itself
        self._active = 1
        return self._barrier

    def _release(self, key: Hashable | None) -> Item | None:
        """The event that kept the key is over; returns the next one that waits for the key."""
        if key is None:
            self._barrier = None
        else:
            behind = self._busy[key]
            if behind:
                self._behind -= 1
                return behind.popleft()
            del self._busy[key]
        self._active -= 1
        return None

    def _finish(self, opened: OpenPlace) -> None:
        """All events of the place are handled."""
        del self._all_open[opened.place.number]
        self.watermark.finish(opened.place)

    def _open_next(self) -> bool:
        self._chunk, self._open = iter(()), None  # what is done with must not stay in memory
        if not self._waiting or self._behind >= MOST_WAITING:
            return False
        place = self._queue.popleft()
        assert place.chunk is not None  # noqa: S101 - bookmarks are born finished, never fed
        events = place.chunk.events()
        self.opened = place.number
        self._open = self._all_open[place.number] = OpenPlace(place, set(events))
        if self.before is not None:
            events = self._without_handled(events)
            self._open.left.intersection_update(events)
        self._chunk = iter(events)
        if not events:
            self._finish(self._open)
        self.watermark.begin()
        return True
