"""Gives replies and rows their places on the watermark, and feeds the places to the lanes.

Replies of the stream and rows (existing documents of a snapshot) alternate
(:class:`tailrace.engine.read.read_order.ReadOrder`). Without rows, replies never wait.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
from bson.timestamp import Timestamp

from tailrace.engine.checkpointer import SAVE_SECONDS, Checkpointer
from tailrace.engine.handler_run import HandlerRun
from tailrace.engine.plan.row_source import Rows, RowSource
from tailrace.engine.plan.scope_plan import Runtime, ScopePlan
from tailrace.engine.ports import PerBatch
from tailrace.engine.position.place import Place
from tailrace.engine.position.watermarks import Watermarks
from tailrace.engine.read.read_limit import ReadLimit
from tailrace.engine.read.read_order import ReadOrder, caught_up_to, split
from tailrace.engine.read.transactions import Transactions
from tailrace.errors import CheckpointError
from tailrace.event import RawBatch, Slice
from tailrace.event.batch import SLICE
from tailrace.stream import Interrupt


@dataclass(slots=True)
class Admission:
    """Admits for one run. ``save_first``: saves the start positions before the first change."""

    plan: ScopePlan
    runtime: Runtime
    source: RowSource
    interrupt: Interrupt
    limit: ReadLimit
    watermarks: Watermarks
    handlers: Sequence[HandlerRun]
    checkpointer: Checkpointer
    save_first: bool = False
    order: ReadOrder = field(default_factory=ReadOrder)
    _place_events: int = field(init=False)
    _place_bytes: int = field(init=False)
    _transactions: Transactions | None = None
    _needed: int = 0
    """The bytes that the reply has of the budget, and no place holds."""

    def __post_init__(self) -> None:
        self.save_first = self.save_first or self.watermarks.position.token is None
        self._place_events, self._place_bytes = _smallest_call(self.plan)
        calls = [routed.handler.calls for routed in self.plan.routed]
        batches = [each for each in calls if isinstance(each, PerBatch)]
        whole = [each.events for each in batches if each.whole_transactions]
        if whole:
            limit = self.runtime.budget.limit
            self._transactions = Transactions(self.plan.scope.name, limit, min(whole))

    @property
    def wants_more(self) -> bool:
        """Whether rows wait to learn if the last reply had all events of its time."""
        return self.source.active and self.order.time is None

    async def reply(self, reply: RawBatch, *, opening: bool, invalidated: bool) -> int | None:
        """Admits a reply; returns how many places it takes, or ``None`` if a stop came first.

        ``opening``: the stream starts with this reply; ``invalidated``: the stream has ended.
        """
        batch, size = reply, self._slice_size(reply)
        if self.save_first and len(batch):
            time = batch.part(0, 1).last().cluster_time
            if time is not None:
                for handler in self.handlers:
                    handler.watermark.begin_at(time)
        if self._transactions is None:
            slices = batch.slices(size)
        else:
            batch, slices = self._transactions.cut(batch, size)
        needed = _bytes(slices) if self._feeds and slices else None
        if needed is not None and not await self.limit.acquire(needed, self.handlers):
            return None
        self._needed = needed or 0
        time, whole = None, False
        if opening:
            self.order.start = reply.token
        elif self.source.active and not invalidated:
            sharded = self.runtime.cluster.name == "mongos"
            time, whole = caught_up_to(reply, self.order.start, sharded=sharded)
            last = self.watermarks.last_change
            if time is not None and last is not None and time < last:
                time = None  # a transaction goes on, of which the last reply had a part
        try:
            return await self._in_order(batch, slices, time, whole=whole, invalidated=invalidated)
        finally:
            if self._needed:  # a stop came first, or the reply was cut, which leaves bytes between
                self.limit.moved(self._needed)

    async def rows(self, rows: Rows) -> int | None:
        """Admits rows, whose reader has the gate; returns as :meth:`reply` does."""
        slices = rows.batch.slices(self._slice_size(rows.batch))
        if self._feeds and not await self.limit.acquire(_bytes(slices), self.handlers):
            return None
        holds = self.watermarks.holds(slices, len(self.handlers) if self._feeds else 0)
        fed = [
            each.watermark.admit_rows(
                slices,
                rows.time,
                rows.own.get(each.name, rows.progress),
                already_stored=rows.already_stored.get(each.name, 0),
                holds=holds,
            )
            for each in self.handlers
        ]
        count = await self._feed(fed)
        if rows.request:  # what an operator requested must survive a crash
            with suppress(CheckpointError), self.interrupt.interrupts(SAVE_SECONDS):
                await self.checkpointer.save()
        return count

    async def _in_order(
        self,
        batch: RawBatch,
        slices: list[Slice],
        time: Timestamp | None,
        *,
        whole: bool,
        invalidated: bool,
    ) -> int:
        """Admits a reply, in two parts if the stream is caught up to a ``time`` within it."""
        order, places = self.order, 0
        if not len(batch) and order.gate.locked() and not invalidated:
            return 0  # a bookmark is not worth a wait: changes may come meanwhile
        if time is not None and not whole:
            early, slices = split(slices, time)
            async with order.gate:
                if early:
                    head = RawBatch(batch.buffer, early[-1].bounds, None)
                    places = await self._append(head, early)
                order.time = time
            await anyio.lowlevel.checkpoint()  # waiting rows go first now
        async with order.gate:
            places += await self._append(batch, slices, invalidated=invalidated)
            order.time = time if whole or not len(batch) else None
        return places

    async def _append(
        self, batch: RawBatch, slices: Sequence[Slice], *, invalidated: bool = False
    ) -> int:
        watermarks = self.watermarks
        time = watermarks.admitted(batch)
        holds = watermarks.holds(slices, len(self.handlers) if self._feeds else 0)
        self._needed -= sum([each.size for each in holds])
        fed = [
            each.watermark.admit(
                slices,
                batch.token,
                time,
                otherwise=batch.operation_time,
                holds=holds,
                invalidated=invalidated,
            )
            for each in self.handlers
        ]
        return await self._feed(fed)

    async def _feed(self, fed: Sequence[list[Place]]) -> int:
        """Feeds each handler with its places."""
        if self.save_first:
            handlers: Sequence[HandlerRun] = list(self.handlers)
            self.save_first = False
            # Else the run after a crash in the first interval would start at a later "now".
            with self.interrupt.interrupts(SAVE_SECONDS):
                await self.checkpointer.save(first=True)
        else:
            handlers = self.handlers
        for handler, places in zip(handlers, fed, strict=False):
            if places and handler.lane is not None and not handler.left:
                handler.lane.feed(places)
        return max([len(places) for places in fed], default=0)

    @property
    def _feeds(self) -> bool:
        """Whether there is a handler to feed."""
        return bool(self.handlers) and self.handlers[0].lane is not None

    def _slice_size(self, batch: RawBatch) -> int:
        fits = not self._place_bytes or batch.size <= self._place_bytes
        return self._place_events if fits else SLICE


def _smallest_call(plan: ScopePlan) -> tuple[int, int]:
    """Events and bytes (0: no bound) of a place: one call's if all handlers take sequences."""
    calls = [routed.handler.calls for routed in plan.routed]
    batches = [each for each in calls if isinstance(each, PerBatch)]
    if len(batches) < len(calls):
        return SLICE, 0
    events = min((each.events for each in batches), default=SLICE)
    return max(events, SLICE), min((each.bytes for each in batches if each.bytes), default=0)


def _bytes(slices: Sequence[Slice]) -> int:
    """How much they hold."""
    return sum([each.size for each in slices])
