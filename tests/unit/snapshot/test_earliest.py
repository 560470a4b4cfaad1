"""A run that continues a snapshot reads no row as of an earlier time than the run before it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import TimeUnavailable
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import RangeProgress, SnapshotMode, SnapshotState
from tailrace.snapshot.snapshots import SnapshotOptions, Snapshots
from tests.unit.snapshot.test_reading_ahead import Counting

UUID = "0" * 32
NOW = Timestamp(9, 5)


@dataclass
class Telling(Counting):
    """A server that tells its time."""

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        assert command == {"ping": 1}
        return {"ok": 1, "operationTime": NOW}


@pytest.mark.parametrize("time", [Timestamp(9, 4), Timestamp(8, 9)])
async def test_rows_wait_until_the_stream_reaches_the_servers_time_at_the_start(
    time: Timestamp,
) -> None:
    scope = Snapshots(Scope("s", "shop"), Telling(), SnapshotOptions(chunk_documents=1))
    ranges = {UUID: RangeProgress(UUID, "shop", "c", 9)}
    stored = SnapshotProgress(
        "id", SnapshotMode.INITIAL, SnapshotState.READING, ranges=ranges, began=Timestamp(1, 1)
    )
    scope.begin(stored, fresh=False, gap=False, rows={})
    with anyio.fail_after(5):
        await scope.ready()
    with pytest.raises(TimeUnavailable):
        await scope.read(time, briefly=False)
    (rows,) = await scope.read(NOW, briefly=False)
    assert rows.time == NOW
