"""The snapshot with which handlers go on together."""

from tailrace.engine.position.snapshot_start import least_snapshot
from tailrace.model.snapshot import RangeProgress, SnapshotMode, SnapshotProgress, SnapshotState
from tests.unit.engine.changes import time


def test_each_range_goes_on_after_the_handler_that_has_the_fewest_of_its_rows() -> None:
    """One that reads on its own may be further in one range, and not as far in another."""

    def reading(first: int, second: int) -> SnapshotProgress:
        scanned = {"first": first, "second": second}
        ranges = {name: RangeProgress(name, "shop", name, scanned=n) for name, n in scanned.items()}
        state = SnapshotState.READING
        return SnapshotProgress("id", SnapshotMode.INITIAL, state, ranges=ranges, began=time(1))

    least = least_snapshot([reading(100, 10), reading(50, 80)])
    assert least is not None
    assert {name: of.scanned for name, of in least.ranges.items()} == {"first": 50, "second": 10}
