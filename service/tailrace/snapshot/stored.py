"""Finds which rows of a chunk each handler's destination already has, after a crash."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tailrace.engine.plan.row_source import Rows
from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import SnapshotState, StoredRows
from tailrace.snapshot.chunk import count_up_to
from tailrace.snapshot.filter import filter_of
from tailrace.snapshot.server import SnapshotServer


class StoredBefore:
    """What each handler had when the run began. A range is forgotten when a chunk goes beyond it.

    The server compares the ids, because it knows their order, including by a collation.
    """

    def __init__(self, server: SnapshotServer, rows: Mapping[str, StoredRows]) -> None:
        self._server = server
        self._rows = {**rows}

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
            noted.append(replace(rows, already_stored=stored))
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
                stored[name] = await count_up_to(
                    self._server,
                    progress.ranges[of],
                    stored_rows.last[of],
                    rows.time,
                    count,
                    matching=filter_of(progress.filter),
                )
        return stored, of
