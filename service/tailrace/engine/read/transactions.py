"""Keeps transactions whole: the events of one take one place, even if they came in several replies.

The events of a transaction follow one another, with the same ``lsid`` and ``txnNumber``. (Two
transactions with the same cluster time on two shards may be mixed; they are kept together.) A
transaction is complete when something else follows: another event, a token of a later time, or an
empty reply. Until then its events are held back.
"""

from collections.abc import Sequence

from tailrace.engine.handle.transaction import same_transaction
from tailrace.errors import ScopeHalted
from tailrace.event import ChangeEvent, RawBatch, Slice
from tailrace.event.batch import SLICE, join
from tailrace.event.layout import TRANSACTION, transaction_at
from tailrace.event.naming import described


class Transactions:
    """Cuts replies into slices of at most ``most_events`` events, or one larger transaction."""

    def __init__(self, scope: str, most_bytes: int, most_events: int = SLICE) -> None:
        self._scope = scope
        self._most_bytes = most_bytes
        self._most_events = most_events
        self._held: list[bytes] = []

    def cut(self, batch: RawBatch, size: int) -> tuple[RawBatch, list[Slice]]:
        """Adds held events to the reply, and holds back a last transaction that may go on.

        Returns the batch and its slices, which also have at most ``size`` events. While events are
        held back, the batch has no token. Raises :class:`ScopeHalted` for a transaction with more
        bytes than may be in flight.
        """
        size = min(size, self._most_events)
        if not self._held and TRANSACTION not in batch.buffer:
            return batch, batch.slices(size)
        joined = self._joined(batch)
        bounds = iter(joined.bounds)
        units = [
            transaction_at(joined.buffer, begin, end)
            for begin, end in zip(bounds, bounds, strict=True)
        ]
        ends = [
            index
            for index in range(1, len(units))
            if not same_transaction(units[index - 1], units[index])
        ]
        if self._goes_on(batch, joined):
            whole = ends[-1] if ends else 0
            self._hold(joined, whole)
            ends = ends[:-1]
            joined = RawBatch(joined.buffer, joined.bounds[: 2 * whole], None)
        if len(joined):
            ends.append(len(joined))
        return joined, self._slices(joined, ends, size)

    def _joined(self, batch: RawBatch) -> RawBatch:
        if not self._held:
            return batch
        held, bounds = join(self._held)
        self._held = []
        first, last = (batch.bounds[0], batch.bounds[-1]) if len(batch) else (0, 0)
        # The reply's events with the bytes between them, as they are: a single copy.
        buffer = b"".join((held, memoryview(batch.buffer)[first:last]))
        bounds += [bound - first + len(held) for bound in batch.bounds]
        return RawBatch(buffer, bounds, batch.token, batch.operation_time)

    def _goes_on(self, batch: RawBatch, joined: RawBatch) -> bool:
        """Whether more events of the last event's transaction may come."""
        if not len(batch):
            # Without a token and a time it is not a reply: the stream holds fragments of an event.
            return batch.token is None and batch.operation_time is None
        last = joined.last
        if last is None or transaction_at(joined.buffer, *joined.bounds[-2:]) is None:
            return False
        after = batch.token.cluster_time if batch.token is not None else None
        return after is None or last.cluster_time is None or after <= last.cluster_time

    def _hold(self, batch: RawBatch, first: int) -> None:
        self._held = list(batch.part(first, len(batch)).raw())
        size = sum(map(len, self._held))
        if size > self._most_bytes:
            raise ScopeHalted(
                f"scope {self._scope!r}: a transaction has more than {size} bytes of events, from "
                f"the {described(ChangeEvent(self._held[0]))} on, and "
                f"delivery.max_in_flight_bytes allows {self._most_bytes}. Raise it, or let the "
                "scope hand over transactions in parts (transactions: separate, and no parquet "
                "handler, which always lands them whole), then 'tailrace reload' and 'tailrace "
                f"scopes restart {self._scope}'"
            )

    def _slices(self, batch: RawBatch, ends: Sequence[int], size: int) -> list[Slice]:
        slices, begin, last = [], 0, 0
        for end in ends:
            if end - begin > size and last > begin:
                slices.append(batch.part(begin, last))
                begin = last
            last = end
        if last > begin:
            slices.append(batch.part(begin, last))
        return slices
