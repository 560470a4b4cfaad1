"""Finds which rows of a chunk each handler's destination already has, after a crash."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import Rows
from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import DocumentId, RangeProgress, SnapshotState, StoredRows
from tailrace.snapshot.chunk import count_up_to
from tailrace.snapshot.filter import filter_of
from tailrace.snapshot.keys import ChosenKeys
from tailrace.snapshot.server import SnapshotServer


class StoredBefore:
    """What each handler had when the run began. A range is forgotten when a chunk goes beyond it.

    The server compares the ids, because it knows their order, including by a collation.
    """

    def __init__(
        self,
        server: SnapshotServer,
        rows: Mapping[str, StoredRows],
        keys: ChosenKeys,
        handled: Sequence[SnapshotProgress] = (),
    ) -> None:
        self._server, self._keys = server, keys
        self._rows = {**rows}
        self._handled = handled

    async def least(self, progress: SnapshotProgress, time: Timestamp) -> SnapshotProgress:
        """Goes back in each range to the handler before which no other one stands.

        Which one has the fewest documents does not tell: some may have been deleted before it read
        them. Raises :class:`tailrace.errors.DriverError`.
        """
        for one in [one for one in self._handled if one.id == progress.id and one.ranges]:
            for name, of in progress.ranges.items():
                other = one.ranges.get(name)
                if of.over or of.last is None or other is None or other.over:
                    continue
                if other.last is None or (
                    other.last != of.last and await self._is_before(other.last, of, time)
                ):
                    back = replace(of, last=other.last, scanned=min(of.scanned, other.scanned))
                    progress = progress.with_range(name, back)
        self._handled = ()
        return progress

    async def _is_before(self, last: DocumentId, of: RangeProgress, time: Timestamp) -> bool:
        """Whether documents are after ``last`` that are not after that of a range."""
        assert of.last is not None  # noqa: S101 - for the type checker
        before = replace(of, last=last)
        return await count_up_to(self._server, before, of.last, time, 1) > 0

    async def noted(self, progress: SnapshotProgress, chunks: Sequence[Rows]) -> Sequence[Rows]:
        """The rows, with how many of them each handler has. They follow ``progress`` in order.

        Raises :class:`tailrace.errors.DriverError`.
        """
        ours = {name: each for name, each in self._rows.items() if each.id == progress.id}
        if not ours:
            return chunks
        noted, rest = [], ours
        for rows in chunks:
            stored, of = await self._already_stored(progress, rows, ours)
            own = {
                name: partial(_own, rows.progress, each, of, stored.get(name, 0))
                for name, each in rest.items()
            }
            noted.append(replace(rows, already_stored=stored, own=own))
            rest = {
                name: each if stored.get(name, 0) == len(rows.batch) else each.without(of)
                for name, each in rest.items()
            }
            progress = rows.progress(len(rows.batch))
        self._rows |= rest
        return noted

    async def _already_stored(
        self, progress: SnapshotProgress, rows: Rows, ours: Mapping[str, StoredRows]
    ) -> tuple[Mapping[str, int], str]:
        """How many of the first rows each handler has, and the name of the rows' range."""
        count = len(rows.batch)
        if progress.state is SnapshotState.PLANNED:
            return dict.fromkeys(ours, count), ""  # all of them have ``snapshotBegin``
        after = rows.progress(count).ranges
        of = next(
            (name for name, stored_rows in progress.ranges.items() if after[name] != stored_rows),
            "",
        )
        stored = {name: count for name, stored_rows in ours.items() if stored_rows.ended}
        for name, stored_rows in ours.items():
            if count and of in stored_rows.last:
                last = stored_rows.last[of]
                stored[name] = await self._up_to(progress, of, last, rows.time, count)
        return stored, of

    async def _up_to(
        self, progress: SnapshotProgress, name: str, last: DocumentId, time: Timestamp, count: int
    ) -> int:
        """How many of the next ``count`` rows of a range are not after the ``last`` one."""
        of = progress.ranges[name]
        reached = await self._keys.up_to(progress, name, last)
        if reached is not None:
            return min(max(reached - of.scanned, 0), count)
        matching = filter_of(progress.filter)
        return await count_up_to(self._server, of, last, time, count, matching=matching)


def _own(
    read: Callable[[int], SnapshotProgress], had: StoredRows, of: str, stored: int, count: int
) -> SnapshotProgress:
    """A handler's progress after so many rows of a range, of which it has the first ``stored``."""
    return (had if count <= stored else had.without(of)).progress(read(count))
