"""Reads the rows of a snapshot beside the stream, each chunk when it may take its places.

The reader of the stream and this one take places in a :class:`ReadOrder`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup
from bson.timestamp import Timestamp

from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.plan.row_source import Rows, RowSource, TimeUnavailable
from tailrace.engine.read.read_limit import ReadLimit
from tailrace.engine.read.read_order import ReadOrder
from tailrace.engine.status.lag import MOST_LAG_SECONDS
from tailrace.engine.status.status import Status
from tailrace.errors import CheckpointCorrupt, CheckpointError, CheckpointFenced
from tailrace.model.snapshot import SnapshotState

_LOOK_SECONDS = 0.5
_HANDLED_SECONDS = 0.02
"""Time until the second check whether ``snapshotBegin`` is handled; then twice as long, and so on
to ``_LOOK_SECONDS``: a destination or a store may be away for long."""

Admit = Callable[[Rows], Awaitable[int | None]]
"""Gives rows their places; returns the number of places, or ``None`` if a stop came first."""


@dataclass(slots=True)
class RowReader:
    """Reads the rows of one run: one chunk after another, when the lanes have room."""

    source: RowSource
    order: ReadOrder
    handlers: Sequence[HandlerRun]
    limit: ReadLimit
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
            await self.limit.until_room(places, self.handlers)
            async with self.order.gate:
                time = await self._caught_up()
                try:
                    busy = self.status.stream.is_busy
                    rows = await self.source.read(time, briefly=busy)
                except TimeUnavailable:
                    self._refused, rows = time, []
                if rows and not busy:
                    tasks.start_soon(self.source.prefetch, time)
                if rows:
                    places = await self._admit(rows)

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
        observed, wait = self.source.observed(), _HANDLED_SECONDS
        while observed is not None and observed.progress.state is SnapshotState.READING:
            stored = [each.stored and each.stored.snapshot for each in self.handlers]
            if all(one and one.id == observed.progress.id and one.began for one in stored):
                return
            try:
                await self.save()
            except (CheckpointCorrupt, CheckpointFenced):
                raise
            except CheckpointError:
                pass  # the checkpointer tries too, and reports it
            await anyio.sleep(wait)
            wait = min(2 * wait, _LOOK_SECONDS)

    async def _caught_up(self) -> Timestamp:
        """Waits until the stream is caught up to a time, and no handler has any later event."""
        while True:
            time = self.order.time
            if (
                time is not None
                and (self._refused is None or time > self._refused)
                and all(_has_none_after(each, time) for each in self.handlers)
            ):
                return time
            await self.order.gate.wait()


def _has_none_after(handler: HandlerRun, time: Timestamp) -> bool:
    """Whether a handler has no event that is later."""
    before = handler.lane.before if handler.lane is not None else None
    return before is None or before.ends_by(time)
