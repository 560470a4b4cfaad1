"""The existing documents of a scope, as its run reads them. :mod:`tailrace.snapshot` has them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from bson.timestamp import Timestamp

from tailrace.event import RawBatch
from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import DocumentId, SnapshotRequest, StoredRows

_NO_SNAPSHOTS = "the scope has no snapshots"


@dataclass(frozen=True, slots=True)
class Rows:
    """Documents as events. ``progress(n)``: the snapshot's progress after the first ``n``.

    ``request``: instead of documents, what an operator requested, which is saved at once.
    ``already_stored``: by handler name, how many of the first rows its destination has. ``own``:
    by handler that was further than the others when the run began, its ``progress``.
    """

    batch: RawBatch
    time: Timestamp
    progress: Callable[[int], SnapshotProgress]
    request: bool = False
    already_stored: Mapping[str, int] = field(default_factory=dict)
    own: Mapping[str, Callable[[int], SnapshotProgress]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedSnapshot:
    """A snapshot as its reader sees it.

    ``rates``: by collection UUID, documents scanned per second (only matching ones are
    delivered). ``trouble``: why the server refused the last read.
    """

    progress: SnapshotProgress
    rates: Mapping[str, float] = field(default_factory=dict)
    trouble: str = ""


FindKeys = Callable[[str, str], Awaitable[Mapping[str, Sequence[DocumentId]] | None]]
"""Reads the keys that differ by a scope's verification with this id, by UUID of their collection;
``None`` if that is not stored any more. Raises :class:`tailrace.errors.CheckpointError`."""


@dataclass(frozen=True, slots=True)
class KnownSnapshots:
    """What is known of a scope's snapshots when a run begins. ``stored``: the progress of the last.

    ``fresh``: the scope has no checkpoint. ``gap``: the run starts after a gap. ``rows``: by
    handler, which rows its destination has. ``handled``: the progress of each handler. Before rows
    are read, those go back to the last one in the order of documents; then ``rows`` has all
    handlers. ``generation``: the last one that wants its snapshot, which one of the scope's own
    replaces. ``keys``: finds those of a snapshot of keys.
    """

    stored: SnapshotProgress | None
    fresh: bool = False
    gap: bool = False
    rows: Mapping[str, StoredRows] = field(default_factory=dict)
    handled: Sequence[SnapshotProgress] = ()
    generation: int = 0
    keys: FindKeys | None = None


class TimeUnavailable(Exception):
    """The documents cannot be read as of that time, because their collection changed since."""


class RowSource(Protocol):
    """The snapshots of one scope. One task reads the rows of a run."""

    def observed(self) -> ObservedSnapshot | None:
        """The last snapshot's progress and speed, and what hinders it."""

    def begin(self, known: KnownSnapshots) -> SnapshotProgress | None:
        """Starts a run; returns the progress to store before the first change is handled."""

    def leave(self) -> None:
        """Forgets everything: another process may follow the scope now."""

    def start(self, collections: tuple[str, ...], filter: str) -> SnapshotRequest | str:
        """What to request so that a snapshot starts, or why none can."""

    def pause(self, *, paused: bool) -> SnapshotRequest | str:
        """What to request to pause or resume the running snapshot, or why it cannot be."""

    def cancel(self) -> SnapshotRequest | str:
        """What to request so that the running snapshot is cancelled, or why it cannot be."""

    def apply(self, generation: int, request: SnapshotRequest) -> None:
        """Applies what is wanted since this stored generation, unless that has been done."""

    @property
    def active(self) -> bool:
        """Whether there is something to read, now or later."""

    async def ready(self) -> None:
        """Returns when the next rows may be read."""

    async def read(self, time: Timestamp, *, briefly: bool) -> Sequence[Rows]:
        """The next rows as of ``time``, in order; empty if there are none now (:meth:`ready`).

        ``briefly``: changes come, and would wait for a large chunk.
        Raises :class:`TimeUnavailable` if the rows can only be read as of a later time, and
        :class:`tailrace.errors.TailraceError` for a failure that ends the run.
        """

    async def prefetch(self, time: Timestamp) -> None:
        """Reads the next rows early. :meth:`read` uses them if it is asked for the same time."""


class NoRows:
    """The source of a scope whose existing documents are not read."""

    active = False

    def observed(self) -> ObservedSnapshot | None:
        return None

    def begin(self, known: KnownSnapshots) -> SnapshotProgress | None:
        return known.stored

    def leave(self) -> None: ...

    def start(self, collections: tuple[str, ...], filter: str) -> SnapshotRequest | str:
        return _NO_SNAPSHOTS

    def pause(self, *, paused: bool) -> SnapshotRequest | str:
        return _NO_SNAPSHOTS

    def cancel(self) -> SnapshotRequest | str:
        return _NO_SNAPSHOTS

    def apply(self, generation: int, request: SnapshotRequest) -> None: ...

    async def ready(self) -> None:
        await anyio.sleep_forever()

    async def read(self, time: Timestamp, *, briefly: bool) -> Sequence[Rows]:
        return ()

    async def prefetch(self, time: Timestamp) -> None: ...
