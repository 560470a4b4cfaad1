"""Documents that were there before the stream, and where they belong in it.

A chunk of documents is read as of a time at which the stream *stands*: every event up to that time
has its place on the watermark, and no later one has. So its rows come behind all that they contain
and before all that they do not, in the one line of places. While a chunk is read, nothing else
takes a place: what the stream returns meanwhile waits.

Beside the reader runs one task, :class:`RowReader`. They take turns by a :class:`Line`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from bson.timestamp import Timestamp

from tailrace.engine.handle.lane import Lane
from tailrace.engine.read.byte_budget import ReadAhead
from tailrace.engine.snapshot_status import ObservedSnapshot
from tailrace.engine.status import MOST_LAG_SECONDS, Status
from tailrace.errors import CheckpointCorrupt, CheckpointError, CheckpointFenced
from tailrace.event import Batch, Chunk
from tailrace.model import ResumeToken, SnapshotProgress
from tailrace.model.snapshot import SnapshotState, StoredRows

_LOOK_SECONDS = 0.5
_HANDLED_SECONDS = 0.02
"""Between two looks at whether ``snapshotBegin`` is handled."""
_BUSY_SECONDS = 1.0
"""A stream whose last changes came so recently is busy: more will come, and would wait for a large
chunk."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Documents as events; ``progress(n)`` is their snapshot's once the first ``n`` are handled.

    ``order``: there are none, but an operator's order, which is saved at once.
    ``had`` are, by the name of a handler, how many of the first it has already.
    """

    batch: Batch
    time: Timestamp
    progress: Callable[[int], SnapshotProgress]
    order: bool = False
    had: Mapping[str, int] = field(default_factory=dict)


class TimeUnavailable(Exception):
    """The documents cannot be read as of that time: they were changed in kind since."""


class RowSource(Protocol):
    """The snapshots of one scope. The rows of a run are read by one task."""

    def observed(self) -> ObservedSnapshot | None:
        """How far the last snapshot is read, how quickly, and what is in the way."""

    def begin(
        self,
        stored: SnapshotProgress | None,
        *,
        fresh: bool,
        gap: bool,
        rows: Mapping[str, StoredRows],
    ) -> SnapshotProgress | None:
        """A run begins with what is stored: ``fresh``, without a position, or behind a ``gap``.

        ``rows`` are what handlers have by what their destinations say.
        Returns what is to be stored before the first change is handled.
        """

    def leave(self) -> None:
        """Another process may follow the scope now: nothing that is known here holds."""

    def start(self, collections: tuple[str, ...], filter: str) -> str:
        """Begins a snapshot for an operator; says why not otherwise."""

    def pause(self, *, paused: bool) -> str:
        """Pauses or resumes the one under way; says why not otherwise."""

    def cancel(self) -> str:
        """Ends the one under way; says why not otherwise."""

    @property
    def active(self) -> bool:
        """Whether there is something to read, now or after a while."""

    async def ready(self) -> None:
        """Returns when the next rows may be read."""

    async def read(self, time: Timestamp, *, briefly: bool) -> Sequence[Rows]:
        """The next rows as of a time, in turn; none if there are none now: see :meth:`ready`.

        ``briefly``: changes come, and would wait for a large chunk.
        Raises :class:`TimeUnavailable` if they can only be read as of a later time, and
        :class:`tailrace.errors.TailraceError` for what ends the run.
        """

    async def read_ahead(self, time: Timestamp) -> None:
        """Reads what :meth:`read` will return if the stream still stands at that time then."""


class Line:
    """Who may append places to the watermark, and the ``time`` at which the stream stands there.

    ``time`` is ``None`` while it stands at none: the last events that have a place may be a part
    only of those of their time. ``start`` is the token with which the stream opened.
    """

    def __init__(self) -> None:
        self.turn = anyio.Condition(anyio.Lock(fast_acquire=True))
        self.start: ResumeToken | None = None
        self.changed_at = 0.0
        """When changes last took their places, by the event loop's clock."""
        self._time: Timestamp | None = None

    @property
    def time(self) -> Timestamp | None:
        """Set by whoever has the turn."""
        return self._time

    @time.setter
    def time(self, time: Timestamp | None) -> None:
        self._time = time
        if time is not None:
            self.turn.notify_all()


def stands(
    batch: Batch, start: ResumeToken | None, *, sharded: bool
) -> tuple[Timestamp | None, bool]:
    """The time at which the stream stands within or behind a reply, and whether it is behind it.

    mongod's token of a reply that ends with the oplog's end tells the time up to which it has
    looked (``PlanExecutorPipeline::_performChangeStreamsAccounting``). Otherwise it is the token of
    the reply's last event, and more events of that time may follow, as those of a transaction. So
    may they always from a mongos, whose token is the least of its shards'; and behind the mark that
    a stream opens with, which is one tick ahead of the server's time.
    """
    last, token = batch.last, batch.token
    if token is None:
        return None, False
    time = token.cluster_time
    if time is None:
        time = last.time if last is not None else None
    elif not (
        sharded
        or (last is not None and last.token == token)
        or (token == start and token.is_high_water)
    ):
        return time, True
    return (None, False) if time is None else (_before(time), False)


def split(chunks: Sequence[Chunk], time: Timestamp) -> tuple[list[Chunk], list[Chunk]]:
    """The events up to a time, and those after it. Their times never fall."""
    early, late = list(chunks), []
    while early and _time(early[-1], len(early[-1]) - 1, time) > time:
        chunk = early.pop()
        first, count = 0, len(chunk)
        while first < count:  # the first event after the time
            middle = (first + count) // 2
            if _time(chunk, middle, time) > time:
                count = middle
            else:
                first = middle + 1
        late.append(chunk.part(first, len(chunk)))
        if first:
            early.append(chunk.part(0, first))
            break
    return early, late[::-1]


def _time(chunk: Chunk, index: int, otherwise: Timestamp) -> Timestamp:
    return chunk.part(index, index + 1).last().time or otherwise


def _before(time: Timestamp) -> Timestamp:
    """The last time before another one."""
    if time.inc:
        return Timestamp(time.time, time.inc - 1)
    return Timestamp(max(time.time - 1, 0), 2**32 - 1)


Admit = Callable[[Rows], Awaitable[int | None]]
"""Gives rows their places; returns how many they are, ``None`` if a stop came first."""


@dataclass(slots=True)
class RowReader:
    """Reads the rows of one run: each chunk when the lanes have room, and in its turn."""

    source: RowSource
    line: Line
    lanes: Sequence[Lane]
    read_ahead: ReadAhead
    status: Status
    admit: Admit
    save: Callable[[], Awaitable[None]]
    _refused: Timestamp | None = None
    """The last time as of which nothing could be read."""

    async def run(self) -> None:
        """Reads until it is cancelled. Raises what the source raises."""
        async with anyio.create_task_group() as tasks:
            await self._run(tasks)
            tasks.cancel_scope.cancel()

    async def _run(self, tasks: TaskGroup) -> None:
        places: int | None = 0
        while places is not None:
            await self.source.ready()
            while self.status.read_lag > MOST_LAG_SECONDS:  # noqa: ASYNC110 - no event tells it
                await anyio.sleep(_LOOK_SECONDS)
            await self._until_plan_is_saved()
            await self.read_ahead.until_room(places, self.lanes)
            async with self.line.turn:
                time = await self._standing()
                try:
                    busy = anyio.current_time() - self.line.changed_at < _BUSY_SECONDS
                    found = await self.source.read(time, briefly=busy)
                except TimeUnavailable:
                    self._refused, found = time, []
                if found and not busy:
                    tasks.start_soon(self.source.read_ahead, time)
                if found:
                    places = await self._admit(found)

    async def _admit(self, found: Sequence[Rows]) -> int | None:
        places = 0
        for rows in found:
            more = await self.admit(rows)
            if more is None:
                return None
            places += more
        return places

    async def _until_plan_is_saved(self) -> None:
        """Else another plan would be made after a crash, behind rows that destinations have."""
        observed = self.source.observed()
        while observed is not None and observed.progress.state is SnapshotState.READING:
            saved = self.status.checkpoint and self.status.checkpoint.snapshot
            if saved and saved.id == observed.progress.id and saved.began is not None:
                return
            try:
                await self.save()
            except (CheckpointCorrupt, CheckpointFenced):
                raise
            except CheckpointError:
                pass  # the checkpointer, which tries as well, says so
            await anyio.sleep(_HANDLED_SECONDS)

    async def _standing(self) -> Timestamp:
        """A time at which the stream stands, and at which no handler has anything from beyond."""
        while True:
            time = self.line.time
            if (
                time is not None
                and (self._refused is None or time > self._refused)
                and all(lane.before is None or lane.before.ends_by(time) for lane in self.lanes)
            ):
                return time
            await self.line.turn.wait()
