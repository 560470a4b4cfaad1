"""Checks that a table takes what its collection's rows need, without writing to it."""

from collections.abc import Sequence
from typing import Any

import psycopg

from tailrace.destinations.postgresql.connection import Connection, is_outage, server_message
from tailrace.destinations.postgresql.names import quoted
from tailrace.destinations.postgresql.tables import Statements, TableRefused, shown

_KIND = b"SELECT relkind FROM pg_class WHERE oid = %s::regclass"
_TABLES = "rp"
"""Kinds of relations that take rows and a unique index: tables, and those with partitions."""
_COLUMNS = b"""
    SELECT a.attname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN a.attgenerated <> '' THEN 'generated'
            WHEN a.attidentity = 'a' THEN 'an identity column (GENERATED ALWAYS)' ELSE '' END,
        a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND t.typdefault IS NULL
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
_UNIQUE = b"""
    SELECT 1 FROM pg_index i JOIN pg_attribute a
        ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
        AND i.indimmediate AND i.indnkeyatts = 1 AND a.attname = %s
"""
_EFFECTS = b"""
    SELECT EXISTS (
        SELECT FROM pg_trigger WHERE tgrelid = t.id AND NOT tgisinternal AND tgenabled <> 'D'
    ) OR EXISTS (
        SELECT FROM pg_rewrite WHERE ev_class = t.id
    ) OR EXISTS (
        SELECT FROM pg_constraint
        WHERE contype = 'f' AND t.id IN (conrelid, confrelid)
            AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))
    ) FROM (SELECT %s::regclass::oid AS id) t
"""


async def require_columns(
    connection: Connection, table: Statements, unique: str | None = None
) -> None:
    """Raises :class:`TableRefused` unless the table takes its columns, and one is ``unique``."""
    name = shown(table.schema, table.name)
    row: Any = await (await connection.execute(_KIND, (name,))).fetchone()
    if row[0] not in _TABLES:
        raise TableRefused(f"{name} is not a table: drop it, or name another table")
    rows: Any = await (await connection.execute(_COLUMNS, (name,))).fetchall()
    kinds = {column: kind for column, kind, _, _ in rows}
    for column, kind in table.columns.items():
        if column not in kinds:
            raise TableRefused(
                f"the table {name} has no column {column!r}: ALTER TABLE {name} ADD COLUMN "
                f"{quoted(column)} {kind}, and start a snapshot for the rows that are there; or "
                "name another table"
            )
        if kinds[column] != kind:
            raise TableRefused(
                f"the column {column!r} of the table {name} has the type {kinds[column]}, not "
                f"{kind}: change one of them, or name another table"
            )
    _require_writable(name, table, rows)
    if unique is not None:
        index: Any = await (await connection.execute(_UNIQUE, (name, unique))).fetchone()
        if index is None:
            raise TableRefused(
                f"the table {name} has no unique index on {unique!r}: "
                f"CREATE UNIQUE INDEX ON {name} ({quoted(unique)})"
            )
    await require_statements(connection, name, table.writes)


async def order_matters(connection: Connection, table: Statements) -> bool:
    """Whether rows of this table change others, by a trigger, a rule or a key that cascades."""
    name = shown(table.schema, table.name)
    row: Any = await (await connection.execute(_EFFECTS, (name,))).fetchone()
    return bool(row[0])


def _require_writable(name: str, table: Statements, rows: Sequence[Any]) -> None:
    made = [f"{column!r} is {how}" for column, _, how, _ in rows if how and column in table.written]
    if made:
        raise TableRefused(
            f"the table {name} takes no values in columns that are written: {', '.join(made)}. "
            "Make them plain columns, or take them out of columns"
        )
    needed = [repr(column) for column, _, _, must in rows if must and column not in table.written]
    if needed:
        raise TableRefused(
            f"the table {name} has columns that are NOT NULL without a default, and nothing fills "
            f"them: {', '.join(needed)}. Give them a default, or let them be NULL"
        )


async def require_statements(
    connection: Connection, name: str, statements: Sequence[tuple[bytes, Any]]
) -> None:
    """Lets the server plan the statements: it checks rights and columns, and executes nothing."""
    for statement, parameters in statements:
        try:
            await connection.execute(b"EXPLAIN " + statement, parameters)
        except psycopg.ProgrammingError as error:
            if is_outage(error):  # a right that is missing may have been revoked for a moment
                raise
            message = f"rows cannot be written to {name}: {server_message(error)}"
            raise TableRefused(message) from error
