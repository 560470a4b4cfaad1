"""The target of a snapshot: what its scope followed when the snapshot was asked for."""

from dataclasses import replace

import structlog
from bson.objectid import ObjectId

from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import SnapshotMode
from tailrace.snapshot.filter import fingerprint


def asked_for(scope: Scope, mode: SnapshotMode, filter: str, parallel: int) -> SnapshotProgress:
    """A new snapshot of what the scope follows, with ``filter`` in canonical Extended JSON."""
    return SnapshotProgress(
        str(ObjectId()),
        mode,
        target=scope.target,
        filter=filter,
        fingerprint=fingerprint(filter),
        parallel=parallel,
    )


def with_target_of(scope: Scope, stored: SnapshotProgress | None) -> SnapshotProgress | None:
    """The stored snapshot; a new one like it if the scope follows something else by now.

    The ranges of the old plan are of collections that the scope does not follow, or lack some that
    it does.
    """
    if stored is None or stored.over or stored.target in ("", scope.target):
        return stored
    why = f"the scope followed {stored.target} when snapshot {stored.id} of it began"
    again = asked_for(scope, stored.mode, stored.filter, stored.parallel)
    structlog.get_logger().warning(
        "snapshot.planned_again",
        scope=scope.name,
        snapshot=again.id,
        target=scope.target,
        reason=why,
    )
    return replace(
        again,
        paused=stored.paused,
        observed_generation=stored.observed_generation,
        collections=stored.collections,
        verification=stored.verification,
        note=f"planned again for {scope.target}: {why}",
    )
