"""Finds which rows of a chunk each handler's destination already has, after a crash."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import Rows
from tailrace.errors import CommandFailed
from tailrace.event.document_key import compare_with
from tailrace.event.wanted_documents import filter_of as keys_filter
from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import DocumentId, RangeProgress, SnapshotState, StoredRows
from tailrace.snapshot.chunk import count_up_to, read_chunk
from tailrace.snapshot.error_codes import NOT_THERE, UNAVAILABLE
from tailrace.snapshot.filter import filter_of
from tailrace.snapshot.keys import ChosenKeys
from tailrace.snapshot.limits import CHUNK_MS, ChunkLimit
from tailrace.snapshot.server import Find, SnapshotServer


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
        self._others: dict[tuple[str, str], list[RangeProgress]] = {}
        """By snapshot and range, how far the handlers were; until it is known who was last."""
        for snapshot in handled:
            for name, of in snapshot.ranges.items():
                self._others.setdefault((snapshot.id, name), []).append(of)

    async def least(self, progress: SnapshotProgress, time: Timestamp) -> SnapshotProgress:
        """Goes back in each range to the handler before which no other one stands.

        Which one has the fewest documents does not tell: some may have been deleted before it read
        them. Raises :class:`tailrace.errors.DriverError`.
        """
        checked: list[tuple[str, str]] = []
        for name, of in progress.ranges.items():
            key, least = (progress.id, name), of
            try:
                for other in self._others.get(key, ()):
                    least = await self._earlier(least, other, time)
            except CommandFailed as error:
                if error.code not in NOT_THERE and error.code != UNAVAILABLE:
                    raise
                # The next chunk is not to be one that was read before: its read tells where the
                # collection is now.
                progress = replace(progress)
                continue
            checked.append(key)
            if least is not of:
                progress = progress.with_range(name, least)
        for key in checked:
            self._others.pop(key, None)
        return progress

    async def _earlier(
        self, of: RangeProgress, other: RangeProgress, time: Timestamp
    ) -> RangeProgress:
        """A range as far as the one of both that was further behind had it."""
        if of.over or of.last is None or other.over or other.last == of.last:
            return of
        if other.last is not None and not await self._is_before(other.last, of, time):
            return of
        return replace(of, last=other.last, scanned=min(of.scanned, other.scanned))

    async def _is_before(self, last: DocumentId, of: RangeProgress, time: Timestamp) -> bool:
        """Whether documents are after ``last`` that are not after that of a range."""
        assert of.last is not None  # noqa: S101 - for the type checker
        between = replace(of, last=last, until=None if of.clustered else of.last)
        after = await read_chunk(self._server, between, time, ChunkLimit(1), keys_only=True)
        if after.last is None or not of.clustered:
            return after.last is not None
        # A clustered collection would be searched to its end for one that is not after the range's.
        key = RawBSONDocument(keys_filter([after.last.raw]))
        command = {
            "filter": {"$and": [key, compare_with("$lte", of.last.raw)]},
            "projection": {"_id": 1},
            "limit": 1,
            "maxTimeMS": CHUNK_MS,
        }
        uuid = bytes.fromhex(of.uuid)
        replies = await self._server.find(Find(of.database, of.collection, uuid, time, command))
        return any(map(len, replies))

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
