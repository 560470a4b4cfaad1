"""A place in a handler's line: a slice of events that it finishes, or a bookmark."""

from __future__ import annotations

from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.event import Slice
from tailrace.event.batch import LastEvent
from tailrace.model import ResumeToken, SnapshotProgress
from tailrace.observe.latency import Latency


@dataclass(slots=True, eq=False)
class Hold:
    """The bytes of a slice in memory, until the last of its ``holders`` has let it go."""

    size: int
    holders: int

    def release(self) -> int:
        """One of them lets it go; returns the bytes that this frees."""
        self.holders -= 1
        return 0 if self.holders else self.size


@dataclass(slots=True, eq=False)
class Place:
    """A slice that the handler has not ``finished``, or a bookmark.

    ``token`` and ``time``: the stream's position after the place; ``invalidated``: it has ended
    there. ``stored``: of a handler with a position of its own, the digest of the last event that it
    has stored. ``taken``: it has accepted the events; then the place releases its slice and keeps
    its ``last`` event.

    ``wanted``: how many of its events the handler gets. ``changed_at``: of a taken place, when its
    first and its last event happened, as Unix times.

    ``rows``: the events are existing documents, which are no position of the stream. ``snapshot``:
    the snapshot's progress after the place. ``already_stored``: how many of the first rows the
    handler has.
    """

    number: int
    slice: Slice | None
    events: int
    size: int
    finished: bool
    hold: Hold | None = None
    taken: bool = False
    token: ResumeToken | None = None
    time: Timestamp | None = None
    invalidated: bool = False
    last: LastEvent | None = None
    stored: str = ""
    wanted: int = 0
    changed_at: tuple[float, float] | None = None
    rows: bool = False
    snapshot: SnapshotProgress | None = None
    already_stored: int = 0

    def observe(self, latency: Latency) -> None:
        """Counts its events, which are handled now; rows of a snapshot are no changes."""
        if self.rows or not self.wanted:
            return
        at = self.slice.changed_at() if self.slice is not None else self.changed_at
        if at is not None:
            latency.handled(self.wanted, *at)

    def note(self, last: ResumeToken) -> None:
        """Notes the last event of this place that the handler's destination has stored."""
        self.stored = last.digest
