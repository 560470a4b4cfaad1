"""Where the rows of a snapshot go on when its handlers have different ones."""

from dataclasses import replace

import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import KnownSnapshots
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import (
    DocumentId,
    RangeProgress,
    SnapshotMode,
    SnapshotState,
    StoredRows,
)
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.snapshots import Snapshots
from tailrace.testing import Changes
from tailrace.testing.snapshot_server import MemorySnapshotServer


def has(progress: SnapshotProgress, last: int | None, scanned: int) -> SnapshotProgress:
    """A handler that has the rows up to one, which were so many as it read them."""
    (name,) = progress.ranges
    at = DocumentId(bson.encode({"_id": last})) if last is not None else None
    return progress.with_range(name, replace(progress.ranges[name], last=at, scanned=scanned))


@pytest.mark.parametrize("deleted", [(), (1, 2, 3, 4)])
@pytest.mark.parametrize("first", [None, 5])
async def test_no_handler_lacks_rows_if_documents_were_deleted_between_two_reads(
    deleted: tuple[int, ...], first: int | None
) -> None:
    """The handler that stands last may have had more documents on its way."""
    changes = Changes()
    for number in range(1, 10):
        changes.insert({"_id": number})
    (of,) = changes.oplog.collections.values()
    for number in deleted:
        changes.delete(number)
    plan = SnapshotProgress(
        "id",
        SnapshotMode.INITIAL,
        SnapshotState.READING,
        ranges={of.uuid.hex(): RangeProgress(of.uuid.hex(), "shop", "orders", 9)},
        began=Timestamp(1, 1),
    )
    handled = {"further": has(plan, 7, 7 - len(deleted)), "last": has(plan, first, first or 0)}
    rows = {}
    for name, progress in handled.items():
        last = {n: one.last for n, one in progress.ranges.items() if one.last is not None}
        rows[name] = StoredRows("id", last, ranges=progress.ranges)
    snapshots = Snapshots(
        Scope("s", "shop"), MemorySnapshotServer(changes.oplog), SnapshotOptions(chunk_documents=9)
    )
    fewest = min(handled.values(), key=lambda one: one.ranges[of.uuid.hex()].scanned)
    snapshots.begin(KnownSnapshots(fewest, rows=rows, handled=[*handled.values()]))
    (chunk,) = await snapshots.read(changes.oplog.now, briefly=False)
    ids = [event.document_key["_id"] for event in chunk.batch.events() if event.document_key]
    got = {name: ids[chunk.already_stored.get(name, 0) :] for name in handled}
    left = [number for number in range(1, 10) if number not in deleted]
    assert got == {"further": [8, 9], "last": [one for one in left if one > (first or 0)]}
