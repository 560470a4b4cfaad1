"""Orders for snapshots: made of what is under way, and stored for whichever process follows."""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from tailrace.control.orders import give
from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.spans import require_here
from tailrace.engine import OrderStore, Watcher, WatcherState
from tailrace.model.snapshot import SnapshotRequest


@dataclass(slots=True, eq=False)
class SnapshotOrders:
    """For the scopes of one process."""

    orders: OrderStore
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while an order is made of what is under way, and stored."""

    async def ask(
        self, watcher: Watcher, action: str, collections: tuple[str, ...], filter: str, by: str
    ) -> Done:
        """Starts, pauses, resumes or cancels a scope's snapshot."""
        rows, name = watcher.plan.rows, watcher.name
        require_here(watcher)
        if watcher.status.state is WatcherState.HALTED:
            message = f"scope {name!r} is halted, and its snapshot with it: restart it first"
            raise ActionRefused(409, message)
        calls: dict[str, Callable[[], SnapshotRequest | str]] = {
            "start": lambda: rows.start(collections, filter),
            "pause": lambda: rows.pause(paused=True),
            "resume": lambda: rows.pause(paused=False),
            "cancel": rows.cancel,
        }
        seen = watcher.status.handled_snapshot
        before = f"snapshot {seen.progress.id} {seen.progress.state.value}" if seen else "none"
        async with self._lock:
            try:
                wanted = calls[action]()
            except ValueError as error:
                raise ActionRefused(400, str(error)) from error
            if isinstance(wanted, str):
                raise ActionRefused(409, wanted)
            if wanted.new and seen is not None and not seen.progress.over and action == "start":
                message = f"snapshot {seen.progress.id} is not over: {seen.trouble}"
                raise ActionRefused(409, message)
            await self.store(watcher, wanted, by=by)
        return Done(f"scope {name!r}: {action} of its snapshot is accepted", before, action)

    async def store(self, watcher: Watcher, wanted: SnapshotRequest, *, by: str) -> None:
        """Stores what is wanted of a scope's snapshot. Raises :class:`ActionRefused`."""
        given = await give(self.orders, watcher.name, by, {"snapshot": wanted})
        watcher.obey(given.order)
