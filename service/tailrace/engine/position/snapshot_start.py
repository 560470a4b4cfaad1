"""The snapshot with which handlers go on together, and which of its rows each of them has."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import RangeProgress, SnapshotState, StoredRows


def least_snapshot(known: Sequence[SnapshotProgress | None]) -> SnapshotProgress | None:
    """The progress with which the handlers' snapshot continues: in each range the least of them.

    It is that with the fewest documents. Another handler may stand before it nevertheless, if
    documents were deleted before it read them: see ``RowSource.begin``. No row is read before every
    handler has its begin, so one that lacks it gets that first.
    """
    active = [one for one in known if one is not None and not one.over]
    if not active:
        return next((one for one in known if one is not None), None)
    least = min(active, key=_rows_of)
    if len(active) > 1:
        same = [one for one in active if one.id == least.id]
        least = replace(least, ranges={name: _least(name, same) for name in least.ranges})
    has_rows = any(one.has_rows for one in active)
    all_begun = all(one is not None and one.id == least.id and one.began for one in known)
    if not (has_rows or all_begun):
        least = replace(least, state=SnapshotState.PLANNED, ranges={}, began=None, time=None)
    return least if len(known) == 1 else replace(least, handled=frozenset())


def _least(name: str, snapshots: Sequence[SnapshotProgress]) -> RangeProgress:
    ranges = [one.ranges[name] for one in snapshots if name in one.ranges]
    return min(ranges, key=lambda one: (one.over, one.scanned))


def _rows_of(progress: SnapshotProgress) -> int:
    return sum(each.scanned for each in progress.ranges.values())


def rows_of_handlers(
    snapshots: Mapping[str, SnapshotProgress | None],
    stored: Mapping[str, StoredRows],
    known: SnapshotProgress | None,
) -> Mapping[str, StoredRows]:
    """By handler, which rows of the snapshot it has: what its destination has ``stored``.

    Unless all are as far as the ``known`` progress, it is that of the others by their own progress,
    too.
    """
    reading = {
        name: one
        for name, one in snapshots.items()
        if one is not None and one.state is SnapshotState.READING
    }
    if known is None or all(one.ranges == known.ranges for one in reading.values()):
        return stored
    return {name: _rows(one, known) for name, one in reading.items()} | {**stored}


def _rows(snapshot: SnapshotProgress, known: SnapshotProgress) -> StoredRows:
    last = {n: one.last for n, one in snapshot.ranges.items() if one.last is not None}
    ranges = snapshot.ranges if known.state is SnapshotState.READING else {}
    return StoredRows(snapshot.id, last, ranges=ranges)
