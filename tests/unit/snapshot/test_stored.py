"""Rows that a destination has, by the position it reports at the start, do not come to it again."""

import pytest
from bson.timestamp import Timestamp

from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import RangeProgress, SnapshotMode, SnapshotState, StoredRows
from tailrace.snapshot.snapshots import SnapshotOptions, Snapshots
from tests.unit.snapshot.test_reading_ahead import Counting

TIME = Timestamp(9, 1)
UUID = "0" * 32


@pytest.mark.parametrize(
    ("stored", "had"),
    [
        (StoredRows("id", ended=True), {"lake": 1}),
        (StoredRows("id"), {}),
        (StoredRows("another", ended=True), {}),
    ],
)
async def test_a_destination_that_has_the_end_has_every_row(
    stored: StoredRows, had: dict[str, int]
) -> None:
    """Of that snapshot; the checkpoint may lag behind it."""
    scope = Snapshots(Scope("s", "shop"), Counting(), SnapshotOptions(chunk_documents=1))
    ranges = {UUID: RangeProgress(UUID, "shop", "c", 9)}
    progress = SnapshotProgress(
        "id", SnapshotMode.INITIAL, SnapshotState.READING, ranges=ranges, began=TIME
    )
    scope.begin(progress, fresh=False, gap=False, rows={"lake": stored})
    (rows,) = await scope.read(TIME, briefly=False)
    assert len(rows.batch) == 1
    assert rows.already_stored == had
