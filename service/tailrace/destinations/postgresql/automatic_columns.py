"""Columns of the top-level fields of documents, as they appear (``columns: auto``).

Each one has a comment in the database, so that every process knows them. A column is added before
the first row that fills it, in a transaction of its own, and never changes its type.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import psycopg

from tailrace.destinations.postgresql.column_types import column, column_name
from tailrace.destinations.postgresql.connection import Connection
from tailrace.destinations.postgresql.names import quoted
from tailrace.destinations.postgresql.tables import TableRefused, shown
from tailrace.destinations.postgresql.values import Values
from tailrace.errors import Unavailable
from tailrace.event import bson
from tailrace.event.bson import walk

_COMMENT = "tailrace: columns: auto"
_FIELDS = 1_000
"""How many fields are looked at: documents may have data as names of fields."""
_SHOWN = 100
_LOCKS = b"SET LOCAL lock_timeout = '5s'"
"""Who waits to change a table holds up all who want to read it."""

_COLUMNS = b"""
    SELECT a.attname, format_type(a.atttypid, a.atttypmod),
        col_description(a.attrelid, a.attnum) = %s, pg_has_role(c.relowner, 'USAGE')
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""

_FITS: Mapping[int, Sequence[str]] = {
    bson.STRING: ("text",),
    bson.SYMBOL: ("text",),
    bson.OBJECT_ID: ("text",),
    bson.BOOLEAN: ("boolean",),
    bson.DATE: ("timestamptz",),
    bson.INT32_TYPE: ("bigint", "double precision", "numeric"),
    bson.INT64_TYPE: ("bigint", "double precision", "numeric"),
    bson.DOUBLE: ("double precision", "numeric"),
    bson.DECIMAL: ("numeric",),
}
"""The types of column for a type of value."""

Fields = dict[bytes, Counter[str]]
"""By field, how many of its values fit each type of column; ``""`` counts all of them.

Of types that equally many fit, the first one is taken: ``bigint``, ``double precision``.
"""


@dataclass(frozen=True, slots=True)
class AutomaticColumns:
    """Those of one table. ``known``: the fields that are no news, because they have a column or
    cannot have one; ``None`` if no further columns are added."""

    values: Values
    known: Set[bytes] | None = None

    def note(self, document: bytes, fields: Fields) -> None:
        """Counts the fields of a document that are news."""
        if self.known is None:
            return
        for name, kind, at, _ in walk(document, 0):
            if name in self.known:
                continue
            is_uuid = kind == bson.BINARY and document[at + 4] == 4
            types = ("uuid",) if is_uuid else _FITS.get(kind, ())
            if types and (name in fields or len(fields) < _FIELDS):
                fields.setdefault(name, Counter()).update(("", *types))


@dataclass(frozen=True, slots=True)
class TableColumns:
    """What a table has: ``automatic`` columns with their types, and the names of all."""

    automatic: Mapping[str, str]
    names: Collection[str]


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of fields: ``added`` columns with their types, and those ``left_out``."""

    added: Mapping[str, str]
    left_out: Collection[bytes]

    @classmethod
    def of(cls, fields: Fields, table: TableColumns, limit: int) -> "Choice":
        """The most frequent fields come first, and get the type that most of their values fit."""
        added: dict[str, str] = {}
        left_out: list[bytes] = []
        for name in sorted(fields, key=lambda name: (-fields[name][""], name)):
            text = name.decode(errors="replace")
            if text in table.automatic:
                continue
            full = len(table.automatic) + len(added) >= limit
            if full or text in table.names or not _can_be_column(text):
                left_out.append(name)
            else:
                counts = fields[name]
                added[text] = max(filter(None, counts), key=lambda kind: counts[kind])
        return cls(added, left_out)

    def report(self, log: Any, table: str) -> None:
        """Names the columns and the fields in the log."""
        if self.added:
            log.info("columns.added", table=table, columns=dict(self.added))
        if self.left_out:
            names = sorted(name.decode(errors="replace") for name in self.left_out)[:_SHOWN]
            consequence = (
                "only document has them: they cannot be columns of their names, or columns_limit "
                "is reached"
            )
            log.warning("columns.left_out", table=table, fields=names, consequence=consequence)


def _can_be_column(name: str) -> bool:
    if not name or "." in name or name.startswith("$") or "\ufffd" in name:
        return False
    try:
        column_name(name)
    except ValueError:
        return False
    return True


async def table_columns(
    connection: Connection, schema: str, name: str, declared: Collection[str]
) -> TableColumns:
    """Those of a table, none if it is missing; ``declared`` ones are not automatic.

    Raises :class:`TableRefused` if we cannot add some, or cannot fill one.
    """
    rows: Any = await (await connection.execute(_COLUMNS, (_COMMENT, schema, name))).fetchall()
    automatic = {each: kind for each, kind, ours, _ in rows if ours and each not in declared}
    for each, kind in automatic.items():
        try:
            column(kind)
        except ValueError:
            raise TableRefused(
                f"the column {each!r} of the table {shown(schema, name)} has the type {kind}, "
                "which columns: auto does not know: change it, or drop the column or its comment"
            ) from None
    if not all(owned for *_, owned in rows):
        raise TableRefused(
            f"columns: auto adds columns to the table {shown(schema, name)}, which only its owner "
            "may: let this role own it (ALTER TABLE … OWNER TO …), or declare the columns"
        )
    return TableColumns(automatic, [each for each, *_ in rows])


async def add_columns(
    connection: Connection, schema: str, name: str, columns: Mapping[str, str]
) -> None:
    """Adds columns with their types, in the open transaction. Raises :class:`Unavailable`."""
    parts = [f"ADD COLUMN {quoted(each)} {kind}" for each, kind in columns.items()]
    await _alter(connection, schema, name, parts)
    for each in columns:
        commented = f"COMMENT ON COLUMN {quoted(schema, name, each)} IS '{_COMMENT}'"
        await connection.execute(commented.encode(), ())


async def take_types(
    connection: Connection, schema: str, name: str, columns: Mapping[str, str]
) -> None:
    """Lets columns of a table whose rows are gone have other types. Raises
    :class:`TableRefused`."""
    parts = [
        f"ALTER COLUMN {quoted(each)} TYPE {kind} USING NULL" for each, kind in columns.items()
    ]
    try:
        await _alter(connection, schema, name, parts)
    except psycopg.errors.FeatureNotSupported as error:
        raise TableRefused(
            f"a rename brings columns of other types to the table {shown(schema, name)}, and "
            f"{error.diag.message_primary}: drop what uses {', '.join(columns)}, and restart the "
            "scope"
        ) from error


async def _alter(connection: Connection, schema: str, name: str, parts: Sequence[str]) -> None:
    if not parts:
        return
    await connection.execute(_LOCKS)
    statement = f"ALTER TABLE {quoted(schema, name)} {', '.join(parts)}"
    try:
        await connection.execute(statement.encode(), ())
    except psycopg.errors.LockNotAvailable as error:
        raise Unavailable(
            f"no column can be added to {shown(schema, name)} while a query or transaction holds it"
        ) from error
