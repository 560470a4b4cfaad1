"""Puts existing documents (the rows of a snapshot) into their place in the stream.

A chunk of documents is read as of a time at which the stream *stands*: every event up to that time
has its place on the watermark, and no later event has. So the rows take places after all changes
that they contain, and before all others. While a chunk is read, nothing else takes a place: replies
that come meanwhile wait.

One task, :class:`RowReader`, runs beside the reader. The two take turns by a :class:`Line`.
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
"""Time between two checks whether ``snapshotBegin`` is handled."""
_BUSY_SECONDS = 1.0
"""A stream whose last changes are more recent than this is busy: more changes will come, and would
wait for a large chunk."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Documents as events. ``progress(n)``: the snapshot's progress after the first ``n``.

    ``order``: instead of documents, an operator's order, which is saved at once. ``had``: by
    handler name, how many of the first rows the handler already has.
    """

    batch: Batch
    time: Timestamp
    progress: Callable[[int], SnapshotProgress]
    order: bool = False
    had: Mapping[str, int] = field(default_factory=dict)


class TimeUnavailable(Exception):
    """The documents cannot be read as of that time, because their collection changed since."""


class RowSource(Protocol):
    """The snapshots of one scope. One task reads the rows of a run."""

    def observed(self) -> ObservedSnapshot | None:
        """The last snapshot's progress and speed, and what hinders it."""

    def begin(
        self,
        stored: SnapshotProgress | None,
        *,
        fresh: bool,
        gap: bool,
        rows: Mapping[str, StoredRows],
    ) -> SnapshotProgress | None:
        """Starts a run with the ``stored`` progress; returns the progress to store first.

        ``fresh``: the scope has no checkpoint. ``gap``: the run starts after a gap. ``rows``: by
        handler, which rows its destination has. The progress returned is stored before the first
        change is handled.
        """

    def leave(self) -> None:
        """Forgets everything: another process may follow the scope now."""

    def start(self, collections: tuple[str, ...], filter: str) -> str:
        """Starts a snapshot for an operator; returns why it cannot, or an empty string."""

    def pause(self, *, paused: bool) -> str:
        """Pauses or resumes the running snapshot; returns why it cannot, or an empty string."""

    def cancel(self) -> str:
        """Cancels the running snapshot; returns why it cannot, or an empty string."""

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

    async def read_ahead(self, time: Timestamp) -> None:
        """Reads the next rows early. :meth:`read` uses them if the stream still stands there."""


class Line:
    """Decides who may append places to the watermark, and at which ``time`` the stream stands.

    ``time`` is ``None`` while the stream stands at no time: more events with the time of the last
    place may come. ``start`` is the token with which the stream opened.
    """

    def __init__(self) -> None:
        self.turn = anyio.Condition(anyio.Lock(fast_acquire=True))
        self.start: ResumeToken | None = None
        self.changed_at = 0.0
        """When changes last took their places, by the event loop's clock."""
        self._time: Timestamp | None = None

    @property
    def time(self) -> Timestamp | None:
        """The time at which the stream stands; set only by the task that has the turn."""
        return self._time

    @time.setter
    def time(self, time: Timestamp | None) -> None:
        self._time = time
        if time is not None:
            self.turn.notify_all()


def stands(
    batch: Batch, start: ResumeToken | None, *, sharded: bool
) -> tuple[Timestamp | None, bool]:
    """The time at which the stream stands within or after a reply, and whether it is after it.

    If a reply reaches the end of the oplog, mongod's token tells the time up to which it searched
    (``PlanExecutorPipeline::_performChangeStreamsAccounting``). Otherwise the token is that of the
    reply's last event, and more events of that time may follow, as in a transaction. They may also
    follow from a mongos, whose token is the lowest of its shards', and after the high-water token
    with which a stream opens, which is one tick ahead of the server's time.
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
    """The events up to a time, and the events after it. The events' times never decrease."""
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
    """The last possible time before ``time``."""
    if time.inc:
        return Timestamp(time.time, time.inc - 1)
    return Timestamp(max(time.time - 1, 0), 2**32 - 1)


Admit = Callable[[Rows], Awaitable[int | None]]
"""Gives rows their places; returns the number of places, or ``None`` if a stop came first."""


@dataclass(slots=True)
class RowReader:
    """Reads the rows of one run: each chunk in its turn, when the lanes have room."""

    source: RowSource
    line: Line
    lanes: Sequence[Lane]
    read_ahead: ReadAhead
    status: Status
    admit: Admit
    save: Callable[[], Awaitable[None]]
    _refused: Timestamp | None = None
    """The last time as of which the documents could not be read."""

    async def run(self) -> None:
        """Reads until it is cancelled. Raises what the source raises."""
        async with anyio.create_task_group() as tasks:
            await self._run(tasks)
            tasks.cancel_scope.cancel()

    async def _run(self, tasks: TaskGroup) -> None:
        places: int | None = 0
        while places is not None:
            await self.source.ready()
            while self.status.read_lag > MOST_LAG_SECONDS:  # noqa: ASYNC110 - there is no event
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
        """Waits until the plan is saved. Else a crash would lead to another plan.

        Destinations would then already have rows of the lost plan.
        """
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
                pass  # the checkpointer tries too, and reports it
            await anyio.sleep(_HANDLED_SECONDS)

    async def _standing(self) -> Timestamp:
        """Waits for a time at which the stream stands and no handler has any later event."""
        while True:
            time = self.line.time
            if (
                time is not None
                and (self._refused is None or time > self._refused)
                and all(lane.before is None or lane.before.ends_by(time) for lane in self.lanes)
            ):
                return time
            await self.line.turn.wait()
