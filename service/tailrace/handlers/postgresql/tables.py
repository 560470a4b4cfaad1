"""Makes tables, checks those that are there, and notes which collection each one holds."""

from collections.abc import Mapping
from typing import Any, Protocol

from tailrace.errors import PermanentError
from tailrace.event import Namespace
from tailrace.handlers.postgresql.connection import Connection
from tailrace.handlers.postgresql.names import quoted

TABLES = "tailrace_tables"
OLDEST = 120_000
"""PostgreSQL 12, as ``server_version_num`` has it."""

_COLUMNS = b"""
    SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
_UNIQUE = b"""
    SELECT 1 FROM pg_index i JOIN pg_attribute a
        ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
        AND i.indnkeyatts = 1 AND a.attname = %s
"""


class TableRefused(PermanentError):
    """A table is missing, or is not as the configuration says; another attempt cannot help."""


class Statements(Protocol):
    """What is known about a table."""

    @property
    def schema(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, str]: ...
    @property
    def create(self) -> bytes: ...


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
    encoding, shown, known = row
    if encoding != "UTF8":
        raise TableRefused(f"the database has the encoding {encoding}, and UTF8 is needed")
    if not known:
        raise TableRefused(f"there is no schema {schema!r}: CREATE SCHEMA {quoted(schema)}")
    return str(shown).partition(" ")[0]


async def lock_names(connection: Connection) -> None:
    """Lets one transaction at a time create tables or note names."""
    await connection.execute(b"SELECT pg_advisory_xact_lock(hashtext('tailrace'))")


async def exists(connection: Connection, schema: str, name: str) -> bool:
    """Whether there is a table of this name."""
    query = b"SELECT to_regclass(%s) IS NOT NULL"
    row: Any = await (await connection.execute(query, (_shown(schema, name),))).fetchone()
    return bool(row[0])


async def made(
    connection: Connection, schema: str, name: str, create: bytes, *, allowed: bool
) -> bool:
    """Creates a table unless it is there; whether it did. Raises :class:`TableRefused`."""
    if await exists(connection, schema, name):
        return False
    if not allowed:
        raise TableRefused(
            f"there is no table {_shown(schema, name)}, and create is false. "
            f"{create.decode().replace('%%', '%')}"
        )
    await connection.execute(create, ())
    return True


async def require_columns(
    connection: Connection, table: Statements, unique: str | None = None
) -> None:
    """Raises :class:`TableRefused` unless the table has its columns, and one is ``unique``."""
    shown = _shown(table.schema, table.name)
    rows: Any = await (await connection.execute(_COLUMNS, (shown,))).fetchall()
    found = dict(rows)
    for name, kind in table.columns.items():
        if name not in found:
            raise TableRefused(
                f"the table {shown} has no column {name!r}: "
                f"ALTER TABLE {shown} ADD COLUMN {quoted(name)} {kind}, or name another table"
            )
        if found[name] != kind:
            raise TableRefused(
                f"the column {name!r} of the table {shown} has the type {found[name]}, not {kind}: "
                "change one of them, or name another table"
            )
    if unique is not None:
        index: Any = await (await connection.execute(_UNIQUE, (shown, unique))).fetchone()
        if index is None:
            raise TableRefused(
                f"the table {shown} has no unique index on {unique!r}: "
                f"CREATE UNIQUE INDEX ON {shown} ({quoted(unique)})"
            )


class Registry:
    """The table that says which collection each table holds: two never share one."""

    def __init__(self, schema: str, handler: str) -> None:
        self._schema = schema
        self._handler = handler
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

    async def enter(
        self, connection: Connection, name: str, scope: str, namespace: Namespace
    ) -> None:
        """Notes what a table holds. Raises :class:`TableRefused` if it holds something else, or is
        not there any more."""
        mine = (self._handler, scope, namespace.db, namespace.coll)
        entered = await connection.execute(self._enter, (name, *mine))
        if entered.rowcount == 1:
            return
        row: Any = await (await connection.execute(self._find, (name,))).fetchone()
        if row is None or tuple(row) == mine:
            if not await exists(connection, self._schema, name):
                raise TableRefused(
                    f"the table {_shown(self._schema, name)} is not there any more: restore it, or "
                    f"delete its row from {_shown(self._schema, TABLES)} and start a snapshot"
                )
            return
        handler, other, database, collection = row
        raise TableRefused(
            f"the table {_shown(self._schema, name)} holds {database}.{collection} "
            f"(handler {handler!r}, scope {other!r}), so it cannot hold {namespace} of scope "
            f"{scope!r}, too: change table in the configuration, or, if nothing else writes there, "
            f"delete its row from {_shown(self._schema, TABLES)}"
        )

    async def tables(self, connection: Connection, scope: str) -> dict[Namespace, str]:
        """The tables of a scope, by collection."""
        found = await connection.execute(self._list, (self._handler, scope))
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


def _shown(schema: str, name: str) -> str:
    return quoted(schema, name).replace("%%", "%")
