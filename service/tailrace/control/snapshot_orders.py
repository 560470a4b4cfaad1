"""Orders for snapshots: made of what is under way, and stored for whichever process follows."""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from tailrace.control.bodies import SnapshotBody
from tailrace.control.follower import require_here
from tailrace.control.orders import give
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.subject import Subject
from tailrace.engine import OrderStore, Watcher, WatcherState
from tailrace.engine.plan.row_source import RowSource
from tailrace.engine.status.status import Status
from tailrace.model.snapshot import SnapshotRequest, SnapshotState


@dataclass(slots=True, eq=False)
class SnapshotOrders:
    """For the scopes of one process."""

    orders: OrderStore
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while an order is made of what is under way, and stored."""

    async def ask(self, subject: Subject, body: SnapshotBody, by: str) -> Done:
        """Starts, pauses, resumes or cancels the snapshot of a scope, or of one handler."""
        watcher, action = subject.watcher, body.action
        require_here(watcher)
        if subject.status.state is WatcherState.HALTED:
            message = f"{subject} is halted, and its snapshot with it: restart it first"
            raise ActionRefused(409, message)
        rows = self._rows(subject, action)
        chosen = tuple(body.collections)
        calls: dict[str, Callable[[], SnapshotRequest | str]] = {
            "start": lambda: rows.start(chosen, body.filter),
            "pause": lambda: rows.pause(paused=True),
            "resume": lambda: rows.pause(paused=False),
            "cancel": rows.cancel,
        }
        seen = subject.status.handled_snapshot
        before = f"snapshot {seen.progress.id} {seen.progress.state.value}" if seen else "none"
        async with self._lock:
            try:
                wanted = calls[action]()
            except ValueError as error:
                raise ActionRefused(400, str(error)) from error
            if isinstance(wanted, str):
                raise ActionRefused(409, wanted)
            if action == "start":
                _require_handled(subject.status)
            await self.store(watcher, wanted, by=by, handler=subject.handler)
        return Done(f"{subject}: {action} of its snapshot is accepted", before, action)

    def _rows(self, subject: Subject, action: str) -> RowSource:
        """The reader of documents that is to obey."""
        watcher, handler = subject.watcher, subject.handler
        if handler is None or handler in watcher.apart or len(watcher.plan.routed) == 1:
            return watcher.rows_of(handler)
        if action != "start":
            message = f"{subject} has no snapshot of its own"
            raise ActionRefused(
                409, f"{message}: 'tailrace snapshot {action} {watcher.name}' is for all handlers"
            )
        return next(each.rows() for each in watcher.plan.routed if each.name == handler)

    async def store(
        self, watcher: Watcher, wanted: SnapshotRequest, *, by: str, handler: str | None = None
    ) -> None:
        """Stores what is wanted of a snapshot. Raises :class:`ActionRefused`."""
        given = await give(self.orders, watcher.name, by, {"snapshot": wanted}, handler)
        watcher.obey(given.order)


def _require_handled(status: Status) -> None:
    """Refuses a further snapshot while handlers have still to handle what the last one read.

    One that is cancelled, but not for the reader of the stream yet, is no reason.
    """
    read, handled = status.snapshot(), status.handled_snapshot
    if read is None or handled is None or read.progress.state is not SnapshotState.DONE:
        return
    if not handled.progress.over:
        raise ActionRefused(409, f"snapshot {read.progress.id} is not over: {handled.trouble}")
