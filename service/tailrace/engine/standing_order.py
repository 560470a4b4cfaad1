"""The last order that one watcher has heard of, from the store or from its own process."""

from dataclasses import dataclass, field

import anyio

from tailrace.engine.plan.row_source import RowSource
from tailrace.engine.ports import OrderStore
from tailrace.model.order import Order
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

    @property
    def pauses(self) -> bool:
        """Whether the scope is to be paused."""
        return self.order is not None and self.order.paused

    def seeks(self, obeyed: int) -> Order | None:
        """The order, if a scope that has obeyed those up to this number is to move by it."""
        return self.order if self.order is not None and self.order.sought > obeyed else None

    @property
    def asked(self) -> int:
        """The number of the last order for the scope's snapshot; 0 without one."""
        return self.order.asked if self.order is not None else 0

    def tell(self, rows: RowSource) -> None:
        """Passes that order on."""
        if self.order is not None and self.order.snapshot is not None:
            rows.obey(self.order.asked, self.order.snapshot)

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
