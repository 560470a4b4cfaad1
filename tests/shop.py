"""A user's class that stores its position in PostgreSQL, and daemons that run it."""

from contextlib import suppress
from typing import Any

import psycopg

from tests.daemon import Daemon, until
from tests.orders import Orders
from tests.postgresql import PostgreSQL

SOURCE = '''
"""Written after docs/handlers.md, with psycopg: a connection for each scope, made by begin."""

from typing import Self

import psycopg

from tailrace import Batch, ChangeEvent, Fenced, ScopeContext

OWN = """
    INSERT INTO position (scope, epoch) VALUES (%s, %s)
    ON CONFLICT (scope) DO UPDATE SET epoch = EXCLUDED.epoch
    WHERE position.epoch <= EXCLUDED.epoch RETURNING text
"""
MOVE = """
    UPDATE position SET text = %s
    WHERE scope = %s AND epoch = %s AND text IS NOT DISTINCT FROM %s
"""
TABLES = """
    CREATE TABLE IF NOT EXISTS position (scope text PRIMARY KEY, epoch bigint, text text);
    CREATE TABLE IF NOT EXISTS {0} (number bigserial, id int, operation text);
"""


class Orders:
    def __init__(self, dsn: str, table: str = "orders", seconds: float = 0) -> None:
        self._dsn = dsn
        self._insert = f"INSERT INTO {table} (id, operation) VALUES (%s, %s)"
        self._tables = TABLES.format(table)
        self._seconds = seconds
        self._connections = {}

    async def __aenter__(self) -> Self:
        async with await psycopg.AsyncConnection.connect(self._dsn) as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(1)")  # two processes may create
            await connection.execute(self._tables)
        return self

    async def __aexit__(self, *error: object) -> None:
        for connection in self._connections.values():
            await connection.close()

    async def begin(self, scope: ScopeContext) -> str | None:
        if former := self._connections.pop(scope.name, None):
            await former.close()
        connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
        self._connections[scope.name] = connection
        row = await (await connection.execute(OWN, (scope.name, scope.epoch))).fetchone()
        if row is None:
            raise Fenced("a later process writes to this database")
        return row[0]

    async def write(self, batch: Batch) -> None:
        scope = batch.scope
        connection = self._connections[scope.name]
        async with connection.transaction():
            given = batch.position, scope.name, scope.epoch, batch.former
            moved = await connection.execute(MOVE, given)
            if moved.rowcount != 1:
                raise Fenced("another process has written since")
            await connection.execute("SELECT pg_sleep(%s)", (self._seconds,))
            async with connection.cursor() as cursor:
                rows = [(event.document_key["_id"], event.operation_type) for event in batch]
                await cursor.executemany(self._insert, rows)

    async def on_ddl(self, event: ChangeEvent) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn) as connection:
            await connection.execute(self._insert, (None, event.operation_type))
'''


class Shop:
    """The collection ``orders``, and a database of PostgreSQL with what ``Orders`` stored."""

    def __init__(self, orders: Orders, server: PostgreSQL) -> None:
        self.orders = orders
        self.server = server
        with psycopg.connect(server.dsn, autocommit=True, connect_timeout=60) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {orders.database} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {orders.database}")
        self.dsn = server.dsn.replace("/postgres?", f"/{orders.database}?")

    def daemon(
        self,
        directory: str = "run",
        options: dict[str, Any] | None = None,
        handler: dict[str, Any] | None = None,
        **sections: Any,
    ) -> Daemon:
        """With the handlers ``table`` and ``file``; it is not started. Attempts are spent soon."""
        table = {
            "type": "python",
            "target": "mine:Orders",
            "options": {"dsn": self.dsn, **(options or {})},
            "outages": ["psycopg.OperationalError"],
            "retry": {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.01},
            "batch_size": 20,
            **(handler or {}),
        }
        file = {"type": "jsonl", "path": "events.jsonl"}
        return self.orders.daemon(
            directory,
            source=SOURCE,
            handlers={"table": table, "file": file},
            routes=[{"scope": "orders", "handlers": ["table", "file"]}],
            **sections,
        )

    @property
    def rows(self) -> list[int]:
        """The ``_id`` of each change, in the order in which they were stored."""
        query = "SELECT id FROM orders WHERE id IS NOT NULL ORDER BY number"
        with psycopg.connect(self.dsn, connect_timeout=60) as connection:
            return [row[0] for row in connection.execute(query)]

    def until_rows(self, count: int) -> None:
        def enough() -> bool:
            with suppress(psycopg.errors.UndefinedTable):
                return len(self.rows) >= count
            return False

        until(enough, f"{count} rows")


def until_waiting(run: Daemon, handler: str = "table") -> None:
    """Until the scope says that it waits for the destination of this handler."""
    until(lambda: run.status().get("state") == "waiting", f"that it waits for {handler!r}")
    assert f"handler {handler!r}" in run.status()["reason"]
    assert run.metric("tailrace_destination_up", handler=handler) == 0
