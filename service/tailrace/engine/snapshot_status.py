"""A scope's snapshot, for people and for Prometheus."""

from collections.abc import Mapping
from typing import Any

from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import RangeProgress


def described(snapshot: SnapshotProgress | None) -> dict[str, Any] | None:
    """For ``/status``: JSON types; ``None`` where the scope never had a snapshot."""
    if snapshot is None:
        return None
    return {
        "id": snapshot.id,
        "mode": snapshot.mode.value,
        "state": "paused" if snapshot.paused and not snapshot.over else snapshot.state.value,
        "note": snapshot.note or None,
        "filter": snapshot.filter or None,
        "cluster_time": snapshot.time and snapshot.time.as_datetime().isoformat(),
        "documents": sum(each.documents for each in snapshot.ranges.values()),
        "remaining": sum(map(_left, snapshot.ranges.values())),
        "collections": [
            {
                "collection": f"{each.database}.{each.collection}",
                "state": each.state.value,
                "note": each.note or None,
                "estimate": each.estimate,
                "documents": each.documents,
                "remaining": _left(each),
            }
            for each in snapshot.ranges.values()
        ],
    }


def documents_read(snapshot: SnapshotProgress | None) -> Mapping[str, tuple[int, int]]:
    """By collection: how many documents were handed over, and about how many are left."""
    found: dict[str, tuple[int, int]] = {}
    for each in snapshot.ranges.values() if snapshot is not None else ():
        name = f"{each.database}.{each.collection}"
        documents, left = found.get(name, (0, 0))
        found[name] = documents + each.documents, left + _left(each)
    return found


def _left(of: RangeProgress) -> int:
    return 0 if of.over else max(of.estimate - of.scanned, 0)
