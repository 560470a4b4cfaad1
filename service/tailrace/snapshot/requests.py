"""What an operator requests of a snapshot, and what becomes of the snapshot by it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bson.objectid import ObjectId

from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import SnapshotMode, SnapshotRequest, SnapshotState
from tailrace.snapshot.filter import canonical
from tailrace.snapshot.target import asked_for


def to_start(
    scope: Scope, under_way: SnapshotProgress | None, collections: tuple[str, ...], filter: str
) -> SnapshotRequest | str:
    """What to request for a new snapshot, or why there can be none.

    Raises ``ValueError`` for a filter that cannot be used, or a wrong collection.
    """
    one = scope.collection
    if one is not None and set(collections) - {one, f"{scope.database}.{one}"}:
        raise ValueError(f"scope {scope.name!r} follows no collection but {one!r}")
    text = canonical(filter)
    if under_way is not None:
        message = f"snapshot {under_way.id} is not over"
        if under_way.paused:
            return f"{message}, but paused: resume it and wait for its end, or cancel it first"
        return f"{message}: cancel it first, or wait for its end"
    return SnapshotRequest(str(ObjectId()), True, collections, text)


def to_pause(
    scope: Scope, under_way: SnapshotProgress | None, *, paused: bool
) -> SnapshotRequest | str:
    """What to request to pause or resume the snapshot under way, or why it cannot be."""
    if under_way is not None and under_way.paused is paused:
        return f"snapshot {under_way.id} is {'paused already' if paused else 'not paused'}"
    wanted = _unchanged(scope, under_way)
    return wanted if isinstance(wanted, str) else replace(wanted, paused=paused)


def corrected(
    progress: SnapshotProgress, configured: SnapshotProgress, *, initial: bool
) -> SnapshotProgress | Mapping[str, Any] | None:
    """What takes the place of a scope's own snapshot that the server refuses; ``None``: nothing.

    That is how its configuration is corrected: ``configured`` is a new one like it, and ``initial``
    says whether the scope begins with one.
    """
    if progress.mode is SnapshotMode.INITIAL and not initial:
        return {"state": SnapshotState.CANCELLED, "note": "it was refused; now snapshot: never"}
    if progress.filter == configured.filter:
        return None
    return replace(configured, observed_generation=progress.observed_generation)


def to_cancel(scope: Scope, under_way: SnapshotProgress | None) -> SnapshotRequest | str:
    """What to request to end the snapshot under way, or why it cannot be."""
    wanted = _unchanged(scope, under_way)
    return wanted if isinstance(wanted, str) else replace(wanted, cancelled=True)


def _unchanged(scope: Scope, under_way: SnapshotProgress | None) -> SnapshotRequest | str:
    if under_way is None:
        return f"scope {scope.name!r} has no snapshot under way"
    return SnapshotRequest(
        under_way.id,
        under_way.mode is SnapshotMode.REQUESTED,
        under_way.collections,
        under_way.filter,
        under_way.paused,
        verification=under_way.verification,
    )


def changes(generation: int, request: SnapshotRequest) -> Mapping[str, Any]:
    """The fields of a snapshot that a request of this generation changes."""
    fields = {"paused": request.paused, "observed_generation": generation}
    return {**fields, "state": SnapshotState.CANCELLED} if request.cancelled else fields


def begun(
    scope: Scope, generation: int, request: SnapshotRequest, parallel: int
) -> SnapshotProgress:
    """The new snapshot that is wanted since this generation."""
    asked = asked_for(scope, SnapshotMode.REQUESTED, request.filter, parallel)
    asked = replace(asked, id=request.id, collections=request.collections)
    asked = replace(asked, verification=request.verification)
    return replace(asked, **changes(generation, request))
