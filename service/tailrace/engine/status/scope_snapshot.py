"""The snapshot of a scope, as far as every handler has its rows."""

from tailrace.engine.plan.row_source import ObservedSnapshot
from tailrace.engine.status.status import Status


def scope_snapshot(status: Status) -> ObservedSnapshot | None:
    """Of the scope whose shared course has this status.

    A handler on its own may still read what the others have: then the snapshot is not over.
    """
    seen = status.handled_snapshot
    if seen is None:
        return None
    of_all = [seen]
    for name, course in status.apart().items():
        own = course.snapshot_of(name)
        if own is not None and own.progress.id == seen.progress.id:
            of_all.append(own)
    return min(of_all, key=lambda observed: (observed.progress.over, observed.progress.documents))
