"""A scope's snapshot, for people and for Prometheus."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tailrace.engine.plan.row_source import ObservedSnapshot
from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import RangeProgress, RangeState, SnapshotState


def as_handled(
    seen: ObservedSnapshot | None, handled: SnapshotProgress | None
) -> ObservedSnapshot | None:
    """What is seen of a snapshot, as far as all handlers have its rows.

    ``handled``: the progress of the snapshot up to the watermark, or in the checkpoint.
    """
    if seen is None or seen.progress.state is SnapshotState.PLANNED:
        return seen
    read = seen.progress
    if handled is None or handled.id != read.id:
        ranges = {
            name: replace(each, scanned=0, documents=0, state=RangeState.READING)
            for name, each in read.ranges.items()
        }
        handled = replace(read, state=SnapshotState.READING, ranges=ranges)
    shown = handled if handled.over else (read.requested(handled) or read)
    if not shown.over and read.state is SnapshotState.DONE:
        waiting = read.documents - shown.documents
        why = f"all documents are read; handlers have still to handle {waiting} of them"
        return replace(seen, progress=shown, trouble=why)
    return replace(seen, progress=shown)


def is_past(own: SnapshotProgress | None, seen: SnapshotProgress, *, busy: bool) -> bool:
    """Whether a handler gets nothing of the ``seen`` snapshot: it was for others, or came before
    the handler's ``own`` one, which is over. ``busy``: the handler has events in flight."""
    if own is not None and own.id == seen.id:
        return False
    return _is_later(own, seen) or (seen.over and not busy)


def _is_later(own: SnapshotProgress | None, seen: SnapshotProgress) -> bool:
    if own is None or not own.over:
        return False
    if own.began is None or seen.began is None:  # it was cancelled before its begin
        return own.observed_generation > seen.observed_generation
    return own.began > seen.began


def least(
    seen: ObservedSnapshot | None,
    handled: Mapping[str, SnapshotProgress | None],
    busy: Collection[str],
) -> SnapshotProgress | None:
    """How far the handler is that has least of a snapshot; ``None`` if one has nothing so far.

    ``handled``: the last snapshot of each handler. ``busy``: those with events in flight.
    """
    if seen is None:
        return None
    read, known = seen.progress, list[SnapshotProgress]()
    for name, progress in handled.items():
        if progress is not None and progress.id == read.id:
            known.append(progress)
        elif not is_past(progress, read, busy=name in busy):
            return None
    return min(known, key=lambda one: (one.over, one.documents), default=read)


def described(seen: ObservedSnapshot | None, obstacle: str) -> dict[str, Any] | None:
    """For ``/status``: JSON types; ``None`` if the scope never had a snapshot.

    ``obstacle``: why the scope reads no documents now; empty if it reads.
    """
    if seen is None:
        return None
    snapshot, collections = seen.progress, seen.progress.by_collection
    paused = snapshot.paused and not snapshot.over
    reason = snapshot.note
    if paused:
        reason = "paused by an operator: 'tailrace snapshot resume' continues it"
    elif not snapshot.over:
        reason = obstacle or seen.trouble or snapshot.note
    shown = [_collection(seen, each) for each in collections]
    left, rate = (
        sum(each[name] for each in shown) for name in ("remaining", "documents_per_second")
    )
    return {
        "id": snapshot.id,
        "mode": snapshot.mode.value,
        "state": "paused" if paused else snapshot.state.value,
        "reason": reason or None,
        "filter": snapshot.filter or None,
        "cluster_time": snapshot.time and snapshot.time.as_datetime().isoformat(),
        "scanned": sum(each.scanned for each in collections),
        "documents": sum(each.documents for each in collections),
        "remaining": left,
        **_speed(rate, left),
        "collections": shown,
    }


def _collection(seen: ObservedSnapshot, of: RangeProgress) -> dict[str, Any]:
    reads = seen.progress.active and not of.over
    return {
        "collection": f"{of.database}.{of.collection}",
        "state": of.state.value,
        "reason": of.note or None,
        "estimate": of.estimate,
        "scanned": of.scanned,
        "documents": of.documents,
        "remaining": _left(seen, of),
        **_speed(seen.rates.get(of.uuid, 0.0) if reads else 0.0, of.left),
    }


def _left(seen: ObservedSnapshot, of: RangeProgress) -> int:
    return 0 if seen.progress.over else of.left


def _speed(rate: float, left: int) -> dict[str, float | None]:
    """Documents per second, and the seconds left at this rate (``None`` if unknown)."""
    seconds = round(left / rate, 1) if rate and left else None
    return {"documents_per_second": round(rate, 1), "seconds_left": seconds}


def documents_read(seen: ObservedSnapshot | None) -> Mapping[str, tuple[int, int]]:
    """By collection: how many documents were delivered, and about how many are left.

    Until its end is found, at least one is left: there may be more documents than were counted.
    """
    by_collection: dict[str, tuple[int, int]] = {}
    if seen is None:
        return by_collection
    for collection in seen.progress.by_collection:
        name = f"{collection.database}.{collection.collection}"
        documents, left = by_collection.get(name, (0, 0))
        least = 0 if seen.progress.over or collection.over else 1
        by_collection[name] = (
            documents + collection.documents,
            left + max(_left(seen, collection), least),
        )
    return by_collection
