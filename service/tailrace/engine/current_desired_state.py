"""The newest desired state that one watcher knows, from the store or from its own process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio

from tailrace.engine.plan.row_source import RowSource
from tailrace.engine.ports import DesiredStateStore
from tailrace.model.desired_state import DesiredHandler, DesiredState
from tailrace.model.snapshot import SnapshotProgress
from tailrace.stream import Interrupt

SnapshotOf = Callable[[str], SnapshotProgress | None]
"""The snapshot that a handler has, as it is stored."""


@dataclass(eq=False)
class CurrentDesiredState:
    """``state`` is ``None`` if there is none. ``version`` grows whenever something else is wanted
    of a handler."""

    scope: str
    state: DesiredState | None = None
    version: int = 0
    is_loaded: bool = False
    """Whether the store was read since the scope is followed here."""
    _held: set[str] = field(default_factory=set)
    _newer: anyio.Event = field(default_factory=anyio.Event)

    @property
    def generation(self) -> int:
        """Its generation; 0 without one."""
        return self.state.generation if self.state is not None else 0

    @property
    def by(self) -> str:
        """Who made the last change; empty without one."""
        return self.state.by if self.state is not None else ""

    def of(self, handler: str) -> DesiredHandler:
        """What is wanted of a handler."""
        wish = self.state.of(handler) if self.state is not None else DesiredHandler()
        return replace(wish, paused=True) if handler in self._held else wish

    def why_paused(self, handler: str) -> str:
        """Why a paused handler is, and what lets it continue."""
        state, alone = self.state, "" if self.pauses else f" --handler {handler}"
        if state is None or not state.of(handler).paused:
            cancel = f"'tailrace scopes replay {self.scope}{alone} --cancel' ends that"
            return f"waits for the end of its replay: {cancel}"
        since = state.at.isoformat(timespec="seconds")
        help_ = f"'tailrace scopes resume {self.scope}{alone}' continues"
        return f"paused by {state.by} at {since}: {help_}"

    def hold(self, handler: str) -> None:
        """Lets a handler stand still, as if it was paused, until it is released."""
        self._held.add(handler)
        self._changed()

    def release(self, handler: str) -> None:
        """Ends what :meth:`hold` has begun."""
        self._held.discard(handler)
        self._changed()

    @property
    def pauses(self) -> bool:
        """Whether the whole scope is to be paused."""
        return self.state is not None and self.state.paused

    def wants_alone(self, handler: str, snapshot: SnapshotProgress | None) -> bool:
        """Whether this handler, which has this snapshot, has to leave the others for one."""
        if self.state is None or handler not in self.state.handlers:
            return False
        own = self.state.handlers[handler]
        if own.snapshot is None or own.snapshot_generation <= self.state.snapshot_generation:
            return False
        return _is_awaited(own, snapshot)

    def awaited_snapshot(self, handler: str, snapshot: SnapshotProgress | None) -> str:
        """The id of the snapshot that this handler, which has that one, is still to begin; empty if
        there is none."""
        wish = self.of(handler)
        if wish.snapshot is None or wish.snapshot.cancelled:
            return ""
        return wish.snapshot.id if _is_awaited(wish, snapshot) else ""

    def request_snapshot(
        self, rows: RowSource, handlers: Sequence[str], snapshot_of: SnapshotOf
    ) -> None:
        """Requests the snapshot that is wanted of these handlers, unless they have applied that."""
        alone = len(handlers) == 1
        wish = self.of(handlers[0]) if alone else self.of("")
        applied = alone and wish.snapshot_generation <= _observed(snapshot_of(handlers[0]))
        if wish.snapshot is not None and not applied:
            rows.apply(wish.snapshot_generation, wish.snapshot)

    def receive(self, desired: DesiredState) -> bool:
        """Takes a desired state over if it is newer than this one; returns whether it is."""
        if desired.generation <= self.generation:
            return False
        self.state = desired
        self._changed()
        return True

    def _changed(self) -> None:
        self.version += 1
        self._newer.set()
        self._newer = anyio.Event()

    async def load(self, store: DesiredStateStore) -> None:
        """Reads it from the store. Raises :class:`tailrace.errors.CheckpointError`."""
        if (found := await store.load(self.scope)) is not None:
            self.receive(found)
        self.is_loaded = True

    async def until_newer(self, version: int, stop: Interrupt) -> None:
        """Returns when something else is wanted than at this version, or after the stop."""
        with stop.interrupts():
            while self.version <= version:
                await self._newer.wait()


def _is_awaited(wish: DesiredHandler, snapshot: SnapshotProgress | None) -> bool:
    """Whether a handler that has this snapshot is still to apply what is wanted of one."""
    if wish.snapshot is None or wish.snapshot_generation <= _observed(snapshot):
        return False
    return wish.snapshot.changes(snapshot)


def _observed(snapshot: SnapshotProgress | None) -> int:
    """The last generation that a snapshot has applied."""
    return snapshot.observed_generation if snapshot is not None else 0
