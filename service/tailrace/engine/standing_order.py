"""The last order that one watcher has heard of, from the store or from its own process."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from tailrace.engine.plan.row_source import RowSource
from tailrace.engine.ports import OrderStore
from tailrace.model.order import HandlerOrder, Order
from tailrace.stream import Interrupt


@dataclass(eq=False)
class StandingOrder:
    """``order`` is the newest one that was heard of; ``None`` if there is none."""

    scope: str
    order: Order | None = None
    _newer: anyio.Event = field(default_factory=anyio.Event)

    @property
    def number(self) -> int:
        """The number of the order; 0 without one."""
        return self.order.number if self.order is not None else 0

    def of(self, handler: str) -> HandlerOrder:
        """What is wanted of a handler."""
        return self.order.of(handler) if self.order is not None else HandlerOrder()

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

    def tell(self, rows: RowSource, handlers: Sequence[str]) -> None:
        """Passes the order for the snapshot of these handlers on."""
        wish = self.of(handlers[0]) if len(handlers) == 1 else self.of("")
        if wish.snapshot is not None:
            rows.obey(wish.asked, wish.snapshot)

    def hear(self, order: Order) -> bool:
        """Notes an order; returns whether it is newer than the last one."""
        if order.number <= self.number:
            return False
        self.order = order
        self._newer.set()
        self._newer = anyio.Event()
        return True

    async def load(self, store: OrderStore) -> None:
        """Reads the order from the store. Raises :class:`tailrace.errors.CheckpointError`."""
        if (found := await store.load(self.scope)) is not None:
            self.hear(found)

    async def until_newer(self, number: int, stop: Interrupt) -> None:
        """Returns when an order with a greater number was heard of, or after the stop."""
        with stop.interrupts():
            while self.number <= number:
                await self._newer.wait()
