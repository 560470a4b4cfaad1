"""Stores a batch in the order of the stream, and finds the events that the server refuses there.

A batch is stored table by table, with the last change of each document, if that order cannot be
seen. It can be if a table has triggers, rules or keys that cascade; then, and after a refusal, the
runs of the batch are stored one after another. A run that is refused is halved, down to one event,
and what the server accepts stays: only an event that is refused after all events before it is at
fault.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import psycopg

from tailrace.destinations.postgresql.connection import Connection, is_of_data
from tailrace.event import ChangeEvent

Store = Callable[[Mapping[int, ChangeEvent]], Awaitable[None]]
"""Stores some events of a batch, by their numbers: the last change of each document."""


def runs(events: Mapping[int, ChangeEvent]) -> Sequence[Mapping[int, ChangeEvent]]:
    """Consecutive events of one collection that all delete, or none of which does."""
    parts: list[dict[int, ChangeEvent]] = []
    former = None
    for number, event in events.items():
        kind = event.ns, event.operation_type == "delete"
        if not parts or kind != former:
            parts.append({})
            former = kind
        parts[-1][number] = event
    return parts


async def refusals(
    connection: Connection, events: Mapping[int, ChangeEvent], store: Store
) -> Mapping[int, psycopg.Error]:
    """Stores the events in the open transaction; returns why some are refused, by their numbers.

    If none is, the commit cannot be refused either.
    """
    order = _StreamOrder(connection, store)
    await connection.execute(b"SAVEPOINT batch")
    refused = await order.apply(events)
    if refused or await order.is_consistent():
        return refused
    # A deferred constraint. Events that break it until a later one mends it are not at fault.
    await order.begin_again(b"SET CONSTRAINTS ALL IMMEDIATE")
    suspects = await order.apply(events)
    at_fault = {}
    for number, error in suspects.items():
        await order.begin_again()
        if not await order.apply(events, without={number}) and await order.is_consistent():
            at_fault[number] = error
    return at_fault or suspects


class _StreamOrder:
    """Works in the open transaction of a connection, after the savepoint ``batch``."""

    def __init__(self, connection: Connection, store: Store) -> None:
        self._connection = connection
        self._store = store

    async def apply(
        self, events: Mapping[int, ChangeEvent], without: Collection[int] = ()
    ) -> dict[int, psycopg.Error]:
        """Stores the events ``without`` some, and without those that follow one of the same
        document that is left out or refused. Returns why events are refused."""
        refused = dict[int, psycopg.Error]()
        keys = {events[number].key for number in without}
        parts = [*reversed(runs(events))]
        while parts:
            part = {n: event for n, event in parts.pop().items() if event.key not in keys}
            error = await self._refusal(part) if part else None
            if error is None:
                continue
            numbers = list(part)
            if len(numbers) == 1:
                refused[numbers[0]] = error
                if (key := part[numbers[0]].key) is not None:
                    keys.add(key)
            else:
                middle = len(numbers) // 2
                parts.append({number: part[number] for number in numbers[middle:]})
                parts.append({number: part[number] for number in numbers[:middle]})
        return refused

    async def is_consistent(self) -> bool:
        """Whether what was stored meets the constraints that are deferred to the commit."""
        return await self._refusal({}) is None

    async def begin_again(self, statement: bytes = b"") -> None:
        """Takes back what was stored."""
        await self._connection.execute(b"ROLLBACK TO SAVEPOINT batch;" + statement)

    async def _refusal(self, part: Mapping[int, ChangeEvent]) -> psycopg.Error | None:
        """Stores a part, or without events meets deferred constraints; why it is refused, if so."""
        await self._connection.execute(b"SAVEPOINT part")
        try:
            if part:
                await self._store(part)
            else:
                await self._connection.execute(b"SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if not is_of_data(error):
                raise
            await self._connection.execute(b"ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part")
            return error
        await self._connection.execute(b"RELEASE SAVEPOINT part")
        return None
