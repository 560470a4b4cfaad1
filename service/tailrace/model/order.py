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
class HandlerOrder:
    """What is wanted of one handler of a scope; its fields mean what those of :class:`Order` do.

    ``replay``: which changes are to come again to it; ``None``: none, or none any more, by the
    order with the number ``replayed``.
    """

    paused: bool = False
    seek: Position | None = None
    sought: int = 0
    fingerprint: str = ""
    set_aside: str = ""
    snapshot: SnapshotRequest | None = None
    asked: int = 0
    replay: ReplayRequest | None = None
    replayed: int = 0


@dataclass(frozen=True, slots=True)
class Order(StoredRecord):
    """The last order for a scope, which the process that follows it obeys, now or when it starts.

    ``number`` grows with each order, from the time of the first on. ``by``: who gave it, ``at``:
    when. ``seek``: where the scope is to continue; ``sought`` is the number of the order that said
    so, and a checkpoint whose ``obeyed`` is not less has been there. ``fingerprint``: of the
    pipeline and options to which the tokens of ``seek`` belong; empty: the current ones.
    ``set_aside``: the one event that the scope leaves out by that move, and why; empty for any
    other move. ``snapshot``: what is wanted of its snapshot; ``asked`` is the number of the order
    that said so. All these are for every handler; ``handlers``: what is wanted of single ones.
    """

    NAME: ClassVar = "order"
    REMEDY: ClassVar = "remove this record: the scope is then not paused, and obeys the next order"

    scope: str
    number: int
    paused: bool
    by: str
    at: datetime
    seek: Position | None = None
    sought: int = 0
    fingerprint: str = ""
    set_aside: str = ""
    snapshot: SnapshotRequest | None = None
    asked: int = 0
    handlers: Mapping[str, HandlerOrder] = field(default_factory=dict)

    def of(self, handler: str) -> HandlerOrder:
        """What is wanted of a handler: of all, or of it alone if that was ordered later."""
        own = self.handlers.get(handler, HandlerOrder())
        moves: HandlerOrder | Order = own if own.sought > self.sought else self
        rows: HandlerOrder | Order = own if own.asked > self.asked else self
        return HandlerOrder(
            self.paused or own.paused,
            moves.seek,
            moves.sought,
            moves.fingerprint,
            moves.set_aside,
            rows.snapshot,
            rows.asked,
            own.replay,
            own.replayed,
        )

    @property
    def asks(self) -> bool:
        """Whether it says what is wanted of a snapshot."""
        own = [each.snapshot for each in self.handlers.values()]
        return any(each is not None for each in [self.snapshot, *own])

    def without_snapshots(self) -> Order:
        """The next order, which says nothing of snapshots."""
        of_handlers = {n: replace(o, snapshot=None, asked=0) for n, o in self.handlers.items()}
        number = self.number + 1
        return replace(self, number=number, snapshot=None, asked=0, handlers=of_handlers)

    def check(self) -> None:
        numbers = [self.sought, self.asked]
        for each in self.handlers.values():
            numbers += [each.sought, each.asked, each.replayed]
        if self.number < 1 or min(numbers) < 0 or max(numbers) > self.number:
            raise ValueError("its numbers are not in order")


@dataclass(frozen=True, slots=True)
class OrderTable:
    """The last order of every scope, by scope name. ``unreadable`` says, by scope, why the record
    of its order cannot be read: only that scope cannot be given orders."""

    orders: Sequence[Order]
    unreadable: Mapping[str, str]
