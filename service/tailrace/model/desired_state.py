"""What an operator wants of a scope, whichever process follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar

from tailrace.model.position import Position
from tailrace.model.replay import ReplayRequest
from tailrace.model.snapshot import SnapshotRequest
from tailrace.model.stored_record import StoredRecord


@dataclass(frozen=True, slots=True)
class DesiredHandler:
    """What is wanted of one handler of a scope, with the fields of :class:`DesiredState`.

    ``replay``: which changes are to come again to it; ``None``: none, or none any more, since
    ``replay_generation``.
    """

    paused: bool = False
    seek: Position | None = None
    seek_generation: int = 0
    fingerprint: str = ""
    set_aside: str = ""
    snapshot: SnapshotRequest | None = None
    snapshot_generation: int = 0
    replay: ReplayRequest | None = None
    replay_generation: int = 0


@dataclass(frozen=True, slots=True)
class DesiredState(StoredRecord):
    """What operators want of a scope. The process that follows it applies that, now or when it
    starts.

    ``generation`` grows with each change, from the time of the first on. ``by``: who made the last
    change, ``at``: when. ``seek``: where the scope is to continue, since ``seek_generation``; a
    checkpoint whose ``observed_generation`` is not less has been there. ``fingerprint``: of the
    pipeline and options to which the tokens of ``seek`` belong; empty: the current ones.
    ``set_aside``: the one event that the scope leaves out by that move, and why; empty for any
    other move. ``snapshot``: what is wanted of its snapshot, since ``snapshot_generation``. All
    these are for every handler; ``handlers``: what is wanted of single ones.
    """

    NAME: ClassVar = "desired state"
    REMEDY: ClassVar = (
        "remove this record: the scope is then not paused, and the next change applies"
    )

    scope: str
    generation: int
    paused: bool
    by: str
    at: datetime
    seek: Position | None = None
    seek_generation: int = 0
    fingerprint: str = ""
    set_aside: str = ""
    snapshot: SnapshotRequest | None = None
    snapshot_generation: int = 0
    handlers: Mapping[str, DesiredHandler] = field(default_factory=dict)

    def of(self, handler: str) -> DesiredHandler:
        """What is wanted of a handler: of all, or of it alone if that was changed later."""
        own = self.handlers.get(handler, DesiredHandler())
        moves: DesiredHandler | DesiredState = (
            own if own.seek_generation > self.seek_generation else self
        )
        rows: DesiredHandler | DesiredState = (
            own if own.snapshot_generation > self.snapshot_generation else self
        )
        return DesiredHandler(
            self.paused or own.paused,
            moves.seek,
            moves.seek_generation,
            moves.fingerprint,
            moves.set_aside,
            rows.snapshot,
            rows.snapshot_generation,
            own.replay,
            own.replay_generation,
        )

    @property
    def has_requests(self) -> bool:
        """Whether it requests something of a snapshot or a replay."""
        own = [each.snapshot or each.replay for each in self.handlers.values()]
        return any(each is not None for each in [self.snapshot, *own])

    def without_requests(self) -> DesiredState:
        """The next generation, without the requests for snapshots and replays."""
        of_handlers = {
            name: replace(
                own, snapshot=None, snapshot_generation=0, replay=None, replay_generation=0
            )
            for name, own in self.handlers.items()
        }
        generation = self.generation + 1
        return replace(
            self, generation=generation, snapshot=None, snapshot_generation=0, handlers=of_handlers
        )

    def check(self) -> None:
        numbers = [self.seek_generation, self.snapshot_generation]
        for each in self.handlers.values():
            numbers += [each.seek_generation, each.snapshot_generation, each.replay_generation]
        if self.generation < 1 or min(numbers) < 0 or max(numbers) > self.generation:
            raise ValueError("its generations are not in order")


@dataclass(frozen=True, slots=True)
class DesiredStateTable:
    """That of every scope, by scope name. ``unreadable`` says, by scope, why its record cannot be
    read: only that scope's desired state cannot be changed."""

    states: Sequence[DesiredState]
    unreadable: Mapping[str, str]
