"""The positions of scopes in PostgreSQL: who may write, and after what.

A position is stored in the transaction of its changes, after its row was compared with the former
one and with the epoch. That keeps out a process that was replaced, one that was paused in a
transaction, and one with another store.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.destination import ScopeContext, ddl_mark
from tailrace.destination.ddl import cluster_time_digits
from tailrace.destinations.postgresql.connection import Connection
from tailrace.destinations.postgresql.names import quoted
from tailrace.errors import Fenced
from tailrace.event import ChangeEvent
from tailrace.event.snapshot_events import is_row

POSITIONS = "tailrace_positions"


class PositionsTable:
    """The table of positions in a schema, for a handler of a scope."""

    def __init__(self, schema: str, handler: str, scope: str) -> None:
        self._handler = handler
        self._scope = scope
        table = quoted(schema, POSITIONS)
        self.create = (
            f"CREATE TABLE {table} (handler text, scope text, epoch bigint NOT NULL, "
            "position text, ddl text, snapshot text, PRIMARY KEY (handler, scope))"
        ).encode()
        self._own = (
            f"INSERT INTO {table} AS p (handler, scope, epoch) "
            "VALUES (%(handler)s, %(scope)s, %(epoch)s) "
            "ON CONFLICT (handler, scope) DO UPDATE SET epoch = excluded.epoch "
            "WHERE p.epoch <= excluded.epoch RETURNING position"
        ).encode()
        mine = "handler = %(handler)s AND scope = %(scope)s AND epoch = %(epoch)s"
        unmoved = f"{mine} AND position IS NOT DISTINCT FROM %(former)s"
        # After 'tailrace scopes seek' earlier changes come again, and DDL with them.
        self._move = (
            f"UPDATE {table} SET position = %(position)s, "
            'ddl = CASE WHEN left(ddl, 16) > %(first)s COLLATE "C" THEN NULL ELSE ddl END '
            f"WHERE {unmoved}"
        ).encode()
        self._stored = (
            f"SELECT position FROM {table} WHERE handler = %(handler)s AND scope = %(scope)s"
        ).encode()
        self._lock = f"SELECT ddl, snapshot FROM {table} WHERE {unmoved} FOR UPDATE".encode()
        self._mark = f"UPDATE {table} SET ddl = %(ddl)s, snapshot = %(snapshot)s WHERE {mine}"
        self._fence = (
            f"of {table.replace('%%', '%')} has a later epoch, so another process follows the "
            "scope now. If none does because the store was replaced, delete the row's epoch: "
            f"UPDATE {table.replace('%%', '%')} SET epoch = 0"
        )

    @property
    def writes(self) -> Sequence[tuple[bytes, Mapping[str, Any]]]:
        """The statements that need rights, with parameters."""
        names = ("handler", "scope", "epoch", "position", "former", "first", "ddl", "snapshot")
        given = dict.fromkeys(names)
        return [(each, given) for each in (self._own, self._move, self._lock, self._mark.encode())]

    async def own(self, connection: Connection, scope: ScopeContext) -> str | None:
        """The position; from now on no process with a smaller epoch may write.

        Waits for a transaction that is still being committed. Raises :class:`Fenced`.
        """
        result = await connection.execute(self._own, self._of(scope))
        row: Any = await result.fetchone()
        if row is None:
            raise Fenced(
                f"the row of handler {self._handler!r}, scope {scope.name!r} {self._fence}"
            )
        return None if row[0] is None else str(row[0])

    async def stored(self, connection: Connection) -> str | None:
        """The position, whoever owns it."""
        of = {"handler": self._handler, "scope": self._scope}
        found = await connection.execute(self._stored, of)
        row: Any = await found.fetchone()
        return None if row is None or row[0] is None else str(row[0])

    async def move(
        self,
        connection: Connection,
        scope: ScopeContext,
        position: str | None,
        former: str | None,
        first: ChangeEvent,
    ) -> None:
        """Stores the position of a batch whose first event this is. Raises :class:`Fenced`."""
        time = None if is_row(first) else cluster_time_digits(first)
        more = {"position": position, "former": former, "first": time}
        moved = await connection.execute(self._move, {**self._of(scope), **more})
        if moved.rowcount != 1:
            raise self._moved(scope)

    async def is_new(
        self, connection: Connection, scope: ScopeContext, former: str | None, event: ChangeEvent
    ) -> bool:
        """Notes an event that is not about a document; whether it comes for the first time.

        Raises :class:`Fenced`.
        """
        parameters = {**self._of(scope), "former": former}
        row: Any = await (await connection.execute(self._lock, parameters)).fetchone()
        if row is None:
            raise self._moved(scope)
        ddl, snapshot = row
        barrier = (event.id or {}).get("snapshot")
        if isinstance(barrier, str):
            mark = f"{barrier} {event.operation_type}"  # snapshotBegin is before snapshotEnd
            if snapshot is not None and snapshot.startswith(barrier) and snapshot >= mark:
                return False
            snapshot = mark
        else:
            mark = ddl_mark(event)
            if ddl is not None and ddl >= mark:
                return False
            ddl = mark
        marked = {**self._of(scope), "ddl": ddl, "snapshot": snapshot}
        await connection.execute(self._mark.encode(), marked)
        return True

    def _of(self, scope: ScopeContext) -> dict[str, Any]:
        return {"handler": self._handler, "scope": scope.name, "epoch": scope.epoch}

    def _moved(self, scope: ScopeContext) -> Fenced:
        return Fenced(
            f"the position of handler {self._handler!r}, scope {scope.name!r}, is not the one that "
            "this process stored: another process writes there, or the database was restored"
        )
