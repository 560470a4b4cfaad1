"""The watermarks of the subscriptions that one run feeds: what the scope has as a whole."""

from collections.abc import Callable, Sequence

from bson.timestamp import Timestamp

from tailrace.engine.position.cluster_time import later
from tailrace.engine.position.place import Hold
from tailrace.engine.position.watermark import Watermark
from tailrace.event import RawBatch, Slice
from tailrace.model import Position, ResumeToken
from tailrace.model.position import earliest

NEAR_PLACES = 64
"""Handlers share the keys of so many places: keys of all that waits for a slow one would double its
memory."""


class Watermarks:
    """``each``: by handler. A scope without handlers has one, without a name.

    :attr:`read_time`: up to where the stream was read (as far as the server told times), and
    :attr:`read_token` the token there. :attr:`size`: the bytes in memory, each slice counted once.
    ``moved`` is called with the freed bytes whenever a handler opens, accepts or finishes places.
    """

    def __init__(self, start: Timestamp | None, moved: Callable[[int], None]) -> None:
        self.each: dict[str, Watermark] = {}
        self.size = 0
        self.read_time = self._start_time = start
        self.read_token: ResumeToken | None = None
        self._moved = moved
        self._replies = 0

    def near(self) -> bool:
        """Whether no handler is far behind the others."""
        return max([len(each.places) for each in self.each.values()]) < NEAR_PLACES

    def moved(self, freed: int) -> None:
        """The hook of each watermark."""
        self.size -= freed
        self._moved(freed)

    def read(self, batch: RawBatch) -> None:
        """Notes that a reply was read; it may still wait for its places."""
        self.read_time = self.time_after(batch) or self.read_time

    def admitted(self, batch: RawBatch) -> Timestamp | None:
        """Notes that a reply has its places; returns the time up to which the stream is read."""
        time = self.time_after(batch)
        self._replies += 1
        if len(batch) or batch.token is not None:
            self.read_token = batch.token
        return time

    def holds(self, slices: Sequence[Slice], handlers: int) -> list[Hold]:
        """What so many handlers hold that get the slices."""
        if not handlers:
            return []
        self.size += sum([each.size for each in slices])
        return [Hold(each.size, handlers) for each in slices]

    def time_after(self, batch: RawBatch) -> Timestamp | None:
        """The time up to which the stream is read after a reply."""
        time = batch.token.cluster_time if batch.token is not None else None
        if time is None and (last := batch.last) is not None:
            time = last.cluster_time
        elif time is None and (self._replies or self._start_time is None):
            # An empty reply whose token tells no time: the server found nothing up to now. But the
            # reply that opens a stream never has events.
            time = batch.operation_time
        return time

    @property
    def position(self) -> Position:
        """The position of the subscription that stands last."""
        return earliest(self.each.values(), lambda each: each.position).position

    @property
    def handled_time(self) -> Timestamp | None:
        """Up to where every handler has handled everything; ``None`` if it is not known."""
        times = [each.handled_time for each in self.each.values()]
        known = [time for time in times if time is not None]
        return min(known) if len(known) == len(times) and known else None

    @property
    def events(self) -> int:
        """How many events a handler has not handled."""
        return max((each.events for each in self.each.values()), default=0)

    @property
    def empty(self) -> bool:
        """Whether everything that was admitted is finished."""
        return all(each.empty for each in self.each.values())

    @property
    def busy(self) -> list[str]:
        """The handlers that have not finished everything that was admitted."""
        return [name for name, each in self.each.items() if not each.empty]

    @property
    def last_change(self) -> Timestamp | None:
        """The time of the last change that was read; ``None`` if it is not known."""
        found = None
        for each in self.each.values():
            found = later(found, each.last_change)
        return found
