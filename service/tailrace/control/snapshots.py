"""Requests for snapshots, made of what is under way in the process that follows the scope."""

from tailrace.control.follower import require_loaded, starting
from tailrace.control.outcome import ActionRefused
from tailrace.control.subject import Subject
from tailrace.engine import WatcherState
from tailrace.engine.plan.row_source import RowSource
from tailrace.model.snapshot import SnapshotRequest


def start_of(
    subject: Subject, rows: RowSource, collections: tuple[str, ...], filter: str
) -> SnapshotRequest | str:
    """What to request so that a snapshot starts, or why none can: it would replace one that a
    handler is still to begin, or reads on its own.

    Raises ``ValueError`` for what cannot be read.
    """
    watcher = subject.watcher
    wanted = rows.start(collections, filter)
    if isinstance(wanted, str):
        return wanted
    for name in subject.handlers:
        has = watcher.claim.snapshot_of(name)
        if awaited := watcher.scope.desired.awaited_snapshot(name, has):
            return f"snapshot {awaited} of handler {name!r} has not begun: wait for its end"
        of = watcher.apart.get(name)
        if of is None or of.state is WatcherState.HALTED:  # all documents come to it again
            continue
        if (seen := of.snapshot_of(name)) is not None and not seen.progress.over:
            message = f"snapshot {seen.progress.id} of handler {name!r} is not over"
            cancel = f"'tailrace snapshot cancel {watcher.name} --handler {name}'"
            return f"{message}: cancel it first ({cancel}), or wait for its end"
    return wanted


def require_handled(subject: Subject) -> None:
    """Refuses a further snapshot while handlers have still to handle what the last one read.

    One that is cancelled, but not for the reader of the stream yet, is no reason.
    """
    status, handler = subject.status, subject.handler
    read, handled = status.snapshot(), status.handled_snapshot
    if handler is not None:  # the others may have less of it
        handled = status.snapshot_of(handler)
    if read is None or handled is None or read.progress.state.value != "done":
        return
    if not handled.progress.over:
        raise ActionRefused(409, f"snapshot {read.progress.id} is not over: {handled.trouble}")


def rows_begun(subject: Subject, action: str) -> RowSource:
    """The same, once it knows what is under way: a run begins with that. Until then nothing would
    be paused or cancelled, and a start would replace what goes on."""
    rows, watcher = rows_of(subject, action), subject.watcher
    if rows.observed() is None:
        require_loaded(watcher)
        known = [watcher.claim.snapshot_of(name) for name in subject.handlers]
        if any(each is not None and not each.over for each in known):
            raise starting(watcher, 503)
    return rows


def rows_of(subject: Subject, action: str) -> RowSource:
    """The reader of documents of what it is about, which knows what is under way.

    A handler that starts one leaves the others for it, and would lose the rest of theirs.
    """
    watcher, handler = subject.watcher, subject.handler
    alone = handler is None or handler in watcher.apart or len(watcher.plan.routed) == 1
    if not alone and action != "start":
        message = f"{subject} has no snapshot of its own"
        raise ActionRefused(
            409, f"{message}: 'tailrace snapshot {action} {watcher.name}' is for all handlers"
        )
    return watcher.rows_of(handler)
