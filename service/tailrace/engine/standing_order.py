"""The last order that one watcher has heard of, from the store or from its own process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio

from tailrace.engine.plan.row_source import RowSource
from tailrace.engine.ports import OrderStore
from tailrace.model.order import HandlerOrder, Order
from tailrace.stream import Interrupt

AskedBy = Callable[[str], int]
"""The number of the last order that a handler's snapshot obeys."""


@dataclass(eq=False)
class StandingOrder:
    """``order`` is the newest one that was heard of; ``None`` if there is none. ``version`` grows
    whenever something else is wanted of a handler."""

    scope: str
    order: Order | None = None
    version: int = 0
    _held: set[str] = field(default_factory=set)
    _newer: anyio.Event = field(default_factory=anyio.Event)

    @property
    def number(self) -> int:
        """The number of the order; 0 without one."""
        return self.order.number if self.order is not None else 0

    @property
    def by(self) -> str:
        """Who gave the order; empty without one."""
        return self.order.by if self.order is not None else ""

    def of(self, handler: str) -> HandlerOrder:
        """What is wanted of a handler."""
        wish = self.order.of(handler) if self.order is not None else HandlerOrder()
        return replace(wish, paused=True) if handler in self._held else wish

    def why_paused(self, handler: str) -> str:
        """Why a paused handler is, and what lets it continue."""
        order, alone = self.order, "" if self.pauses else f" --handler {handler}"
        if order is None or not order.of(handler).paused:
            cancel = f"'tailrace scopes replay {self.scope}{alone} --cancel' ends that"
            return f"waits for the end of its replay: {cancel}"
        since = order.at.isoformat(timespec="seconds")
        help_ = f"'tailrace scopes resume {self.scope}{alone}' continues"
        return f"paused by {order.by} at {since}: {help_}"

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
        return self.order is not None and self.order.paused

    def alone(self, handler: str) -> int:
        """The number of the last order for the snapshot of this handler alone; 0 without one."""
        if self.order is None or handler not in self.order.handlers:
            return 0
        asked = self.order.handlers[handler].asked
        return asked if asked > self.order.asked else 0

    def tell(self, rows: RowSource, handlers: Sequence[str], asked_by: AskedBy) -> None:
        """Passes the order for the snapshot of these handlers on, unless they have obeyed it."""
        alone = len(handlers) == 1
        wish = self.of(handlers[0]) if alone else self.of("")
        obeyed = alone and wish.asked <= asked_by(handlers[0])
        if wish.snapshot is not None and not obeyed:
            rows.obey(wish.asked, wish.snapshot)

    def hear(self, order: Order) -> bool:
        """Notes an order; returns whether it is newer than the last one."""
        if order.number <= self.number:
            return False
        self.order = order
        self._changed()
        return True

    def _changed(self) -> None:
        self.version += 1
        self._newer.set()
        self._newer = anyio.Event()

    async def load(self, store: OrderStore) -> None:
        """Reads the order from the store. Raises :class:`tailrace.errors.CheckpointError`."""
        if (found := await store.load(self.scope)) is not None:
            self.hear(found)

    async def until_newer(self, version: int, stop: Interrupt) -> None:
        """Returns when something else is wanted than at this version, or after the stop."""
        with stop.interrupts():
            while self.version <= version:
                await self._newer.wait()
