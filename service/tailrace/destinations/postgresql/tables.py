"""Makes tables, checks those that are there, and notes which collection each one holds."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from tailrace.destinations.postgresql.connection import Connection
from tailrace.destinations.postgresql.names import quoted
from tailrace.errors import ScopeHalted
from tailrace.event import Namespace

TABLES = "tailrace_tables"
OLDEST = 120_000
"""PostgreSQL 12, as ``server_version_num`` has it."""

_EXISTS = b"""
    SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
"""
"""Not ``to_regclass``: that may answer from a cache which a wait for a lock has not renewed."""


class TableRefused(ScopeHalted):
    """A table is missing, or is not as the configuration says; another attempt cannot help."""


class Statements(Protocol):
    """What is known about a table.

    ``columns``: all that it must have, with their types, and ``written`` those that get values.
    ``writes``: the statements that store rows, with parameters that store none.
    """

    @property
    def schema(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, str]: ...
    @property
    def create(self) -> bytes: ...
    @property
    def written(self) -> Collection[str]: ...
    @property
    def writes(self) -> Sequence[tuple[bytes, Sequence[Any]]]: ...


async def require_server(connection: Connection, schema: str) -> str:
    """Its version. Raises :class:`TableRefused` for a server or schema that cannot be used."""
    version = connection.info.server_version
    if version < OLDEST:
        raise TableRefused(f"the server has version {version // 10_000}, and 12 is needed")
    row: Any = await (
        await connection.execute(
            b"SELECT current_setting('server_encoding'), current_setting('server_version'), "
            b"to_regnamespace(quote_ident(%s)) IS NOT NULL",
            (schema,),
        )
    ).fetchone()
    encoding, full, known = row
    if encoding != "UTF8":
        raise TableRefused(f"the database has the encoding {encoding}, and UTF8 is needed")
    if not known:
        raise TableRefused(f"there is no schema {schema!r}: CREATE SCHEMA {quoted(schema)}")
    return str(full).partition(" ")[0]


async def lock_names(connection: Connection) -> None:
    """Lets one transaction at a time create tables or note names."""
    await connection.execute(b"SELECT pg_advisory_xact_lock(hashtext('tailrace'))")


async def exists(connection: Connection, schema: str, name: str) -> bool:
    """Whether there is a table of this name, or something else that has it."""
    return await (await connection.execute(_EXISTS, (schema, name))).fetchone() is not None


async def made(
    connection: Connection, schema: str, name: str, create: bytes, *, allowed: bool
) -> bool:
    """Creates a table unless it is there; whether it did. Raises :class:`TableRefused`."""
    if await exists(connection, schema, name):
        return False
    if not allowed:
        raise TableRefused(
            f"there is no table {shown(schema, name)}, and create is false. "
            f"{create.decode().replace('%%', '%')}"
        )
    await connection.execute(create, ())
    return True


class Registry:
    """The table that says which collection each table holds: two never share one."""

    def __init__(self, schema: str, handler: str, scope: str) -> None:
        self._schema = schema
        self._handler = handler
        self._scope = scope
        table = quoted(schema, TABLES)
        self.create = (
            f"CREATE TABLE {table} (name text PRIMARY KEY, handler text NOT NULL, "
            "scope text NOT NULL, database text NOT NULL, collection text NOT NULL, "
            "made boolean NOT NULL DEFAULT false)"
        ).encode()
        self._enter = (
            f"INSERT INTO {table} (name, handler, scope, database, collection) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (name) DO NOTHING"
        ).encode()
        self._find = (
            f"SELECT handler, scope, database, collection FROM {table} WHERE name = %s"
        ).encode()
        self._list = (
            f"SELECT name, database, collection FROM {table} WHERE handler = %s AND scope = %s"
        ).encode()
        self._made = f"UPDATE {table} SET made = true WHERE name = %s".encode()
        self._is_made = f"SELECT made FROM {table} WHERE name = %s".encode()
        self._remove = f"DELETE FROM {table} WHERE name = %s AND handler = %s".encode()

    @property
    def writes(self) -> Sequence[tuple[bytes, Sequence[Any]]]:
        """The statements that need rights, with parameters."""
        return [
            (self._enter, ("",) * 5),
            (self._find, ("",)),
            (self._made, ("",)),
            (self._remove, ("", "")),
        ]

    async def enter(self, connection: Connection, name: str, namespace: Namespace) -> None:
        """Notes what a table holds. Raises :class:`TableRefused` if it holds something else, or is
        not there any more."""
        mine = (self._handler, self._scope, namespace.db, namespace.coll)
        entered = await connection.execute(self._enter, (name, *mine))
        if entered.rowcount == 1:
            return
        row: Any = await (await connection.execute(self._find, (name,))).fetchone()
        if row is None or tuple(row) == mine:
            if not await exists(connection, self._schema, name):
                raise TableRefused(
                    f"the table {shown(self._schema, name)} is not there any more: restore it or "
                    f"its name, or delete its row from {shown(self._schema, TABLES)}, restart the "
                    "scope and start a snapshot"
                )
            return
        handler, other, database, collection = row
        raise TableRefused(
            f"the table {shown(self._schema, name)} holds {database}.{collection} "
            f"(handler {handler!r}, scope {other!r}), so it cannot hold {namespace} of scope "
            f"{self._scope!r}, too: change table in the configuration, or, if nothing else writes "
            f"there, delete its row from {shown(self._schema, TABLES)}"
        )

    async def holds(self, connection: Connection, name: str, namespace: Namespace) -> bool:
        """Whether a table was noted as that of this collection."""
        row: Any = await (await connection.execute(self._find, (name,))).fetchone()
        return bool(row == (self._handler, self._scope, namespace.db, namespace.coll))

    async def tables(self, connection: Connection) -> dict[Namespace, str]:
        """The tables of the scope, by collection."""
        found = await connection.execute(self._list, (self._handler, self._scope))
        rows: Any = await found.fetchall()
        return {Namespace(database, collection): name for name, database, collection in rows}

    async def note_made(self, connection: Connection, name: str) -> None:
        """Notes that the table is our own."""
        await connection.execute(self._made, (name,))

    async def is_made(self, connection: Connection, name: str) -> bool:
        """Whether the table was noted so."""
        row: Any = await (await connection.execute(self._is_made, (name,))).fetchone()
        return row is not None and bool(row[0])

    async def remove(self, connection: Connection, name: str) -> None:
        """Lets another collection have the table."""
        await connection.execute(self._remove, (name, self._handler))


def shown(schema: str, name: str) -> str:
    """The name of a table in messages, and for ``regclass``."""
    return quoted(schema, name).replace("%%", "%")
