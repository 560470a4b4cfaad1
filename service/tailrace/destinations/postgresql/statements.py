"""The SQL of a collection's table. Every statement is executed with parameters."""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

from tailrace.destinations.postgresql.automatic_columns import AutomaticColumns
from tailrace.destinations.postgresql.column_types import Column
from tailrace.destinations.postgresql.names import quoted
from tailrace.event.cluster_position import EPOCH_SECONDS

OWN = {
    "tailrace_id": "bytea",
    "tailrace_version": "bigint",
    "key": "text",
    "document": "jsonb",
    "cluster_time": "timestamp with time zone",
}
"""The columns that every table has, with their types."""

SOFT = {"deleted_at": "timestamp with time zone"}


def time_of(version: str) -> str:
    """The time of a version, in whole seconds as MongoDB has it."""
    return f"to_timestamp(({version} >> 32) + {EPOCH_SECONDS})"


class TableStatements:
    """The statements of one table. ``columns``: names and types of those beside our own, first
    the declared ones and then the ``automatic`` ones."""

    def __init__(
        self,
        schema: str,
        name: str,
        columns: Sequence[tuple[str, Column]],
        automatic: AutomaticColumns,
        *,
        soft: bool,
    ) -> None:
        self.schema = schema
        self.name = name
        self.automatic = automatic
        self._of_fields = columns
        self._soft = soft
        self._table = quoted(schema, name)

    @property
    def columns(self) -> dict[str, str]:
        """Every column and its type, as PostgreSQL shows it."""
        of_fields = {name: column.type for name, column in self._of_fields}
        return {**OWN, **(SOFT if self._soft else {}), **of_fields}

    @property
    def written(self) -> Collection[str]:
        return self.columns.keys()

    @property
    def writes(self) -> Sequence[tuple[bytes, Sequence[Any]]]:
        """The statements that store rows, with parameters that store none."""
        return (self.upsert, ([],) * (4 + len(self._of_fields))), (self.delete, ([], []))

    @property
    def create(self) -> bytes:
        columns = {**self.columns}
        for name in self.automatic.values.paths:
            del columns[name]  # they are added, with a comment
        of_columns = [f"{quoted(name)} {kind}" for name, kind in columns.items()]
        definitions = ", ".join([*of_columns, "PRIMARY KEY (tailrace_id)"])
        return f"CREATE TABLE {self._table} ({definitions})".encode()

    @cached_property
    def upsert(self) -> bytes:
        """Gets arrays: ids, keys, documents (JSON as UTF-8), versions, and one for each column."""
        values = self._values
        columns = [quoted(name) for name in values]
        changed = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
        return (
            f"INSERT INTO {self._table} ({', '.join(columns)}) "
            f"SELECT {', '.join(values.values())} FROM {self._taken} "
            f"ON CONFLICT (tailrace_id) DO UPDATE SET {changed}"
        ).encode()

    @property
    def _values(self) -> dict[str, str]:
        """By column, the SQL of what is stored of :attr:`_taken`."""
        values = {
            "tailrace_id": "i",
            "key": "k",
            "document": "convert_from(d, 'UTF8')::jsonb",
            "tailrace_version": "v",
            "cluster_time": time_of("v"),
            **({"deleted_at": "NULL::timestamptz"} if self._soft else {}),
        }
        for index, (name, column) in enumerate(self._of_fields):
            values[name] = column.made.format(f"c{index}")
        return values

    @property
    def _taken(self) -> str:
        """The arrays that are sent, as rows."""
        arrays = ["bytea", "text", "bytea", "int8", *(made.sent for _, made in self._of_fields)]
        names = ["i", "k", "d", "v", *(f"c{index}" for index in range(len(self._of_fields)))]
        taken = ", ".join(f"%b::{kind}[]" for kind in arrays)
        return f"unnest({taken}) AS r({', '.join(names)})"

    @property
    def compared(self) -> Sequence[str]:
        """The columns that a document alone decides, and that are not its identity."""
        return ("key", "document", *(name for name, _ in self._of_fields))

    @cached_property
    def expected(self) -> bytes:
        """Gets what ``upsert`` gets; gives of each row its id and the texts of what is compared."""
        values = self._values
        shown = ", ".join(f"({values[name]})::text" for name in self.compared)
        return f"SELECT i, {shown} FROM {self._taken}".encode()

    @cached_property
    def held(self) -> bytes:
        """Gets ids; gives the same of the rows that are there."""
        shown = ", ".join(f"{quoted(name)}::text" for name in self.compared)
        return (
            f"SELECT tailrace_id, {shown} FROM {self._table} "
            f"WHERE tailrace_id = ANY(%b::bytea[]){self._alive}"
        ).encode()

    @cached_property
    def unlike(self) -> bytes:
        """Gets what ``upsert`` gets; gives the ids of those whose rows are not there or differ.

        The rows of a sharded collection have the shard key in their key, too.
        """
        values, names = self._values, self.compared
        made = ", ".join(f"({values[name]})::text AS e{at}" for at, name in enumerate(names))
        held = ", ".join(f"{quoted(name)}::text AS h{at}" for at, name in enumerate(names))
        differs = " OR ".join(f"e{at} IS DISTINCT FROM h{at}" for at in range(1, len(names)))
        return (
            f"SELECT i FROM (SELECT i, {made} FROM {self._taken}) AS expected LEFT JOIN "
            f"(SELECT tailrace_id, {held} FROM {self._table} WHERE true{self._alive}) AS held "
            f"ON tailrace_id = i WHERE {differs} OR h0 IS NULL OR h0 <> e0 AND ("
            "(h0::jsonb -> '_id')::text IS DISTINCT FROM (e0::jsonb -> '_id')::text "
            "OR h0::jsonb - '_id' = '{}')"
        ).encode()

    @property
    def held_keys(self) -> bytes:
        """Gets an id and a number: the id and the key of so many rows after that id."""
        return (
            f"SELECT tailrace_id, key FROM {self._table} "
            f"WHERE tailrace_id > %b{self._alive} ORDER BY tailrace_id LIMIT %b"
        ).encode()

    @property
    def _alive(self) -> str:
        return " AND deleted_at IS NULL" if self._soft else ""

    @cached_property
    def delete(self) -> bytes:
        """Gets arrays: ids, and the versions of the deletes."""
        given = "unnest(%b::bytea[], %b::int8[]) AS r(i, v)"
        if not self._soft:
            return f"DELETE FROM {self._table} t USING {given} WHERE t.tailrace_id = r.i".encode()
        return (
            f"UPDATE {self._table} t SET deleted_at = {time_of('v')}, tailrace_version = v, "
            f"cluster_time = {time_of('v')} FROM {given} WHERE t.tailrace_id = r.i"
        ).encode()

    @property
    def keys(self) -> bytes:
        """Gets ids, and gives the ids, document keys and versions of the rows that are there."""
        return (
            f"SELECT tailrace_id, key, tailrace_version FROM {self._table} "
            "WHERE tailrace_id = ANY(%b::bytea[])"
        ).encode()

    @property
    def first(self) -> bytes:
        """Finds out whether there is a row."""
        return f"SELECT 1 FROM {self._table} LIMIT 1".encode()

    @property
    def drop(self) -> bytes:
        """Drops the table, if nothing depends on it."""
        return f"DROP TABLE {self._table}".encode()

    @property
    def empty(self) -> bytes:
        """Removes the rows up to the version ``at``."""
        return self._remove("tailrace_version <= %(at)s")

    @property
    def sweep(self) -> bytes:
        """Removes the rows before the version ``at``, except those with the ids ``kept``."""
        return self._remove("tailrace_version < %(at)s AND tailrace_id <> ALL(%(kept)s::bytea[])")

    def _remove(self, which: str) -> bytes:
        if not self._soft:
            return f"DELETE FROM {self._table} WHERE {which}".encode()
        return (
            f"UPDATE {self._table} SET deleted_at = {time_of('%(at)s::bigint')} "
            f"WHERE {which} AND deleted_at IS NULL"
        ).encode()

    def take_rows_of(self, other: "TableStatements") -> bytes:
        """Moves the rows up to the version ``at`` from another table here, with the columns that
        both have."""
        names = [quoted(name) for name in self.columns]
        columns = ", ".join(quoted(name) for name in self.columns if name in other.columns)
        changed = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
        return (
            f"WITH moved AS (DELETE FROM {quoted(self.schema, other.name)} "
            f"WHERE tailrace_version <= %(at)s RETURNING {columns}) "
            f"INSERT INTO {self._table} AS t ({columns}) SELECT {columns} FROM moved "
            f"ON CONFLICT (tailrace_id) DO UPDATE SET {changed} "
            f"WHERE t.tailrace_version <= %(at)s"
        ).encode()


class LogStatements:
    """The SQL of a log table, which is only appended to."""

    def __init__(self, schema: str, name: str) -> None:
        self.schema = schema
        self.name = name
        self._table = quoted(schema, name)
        self.columns = {
            "position": "bigint",
            "id": "text",
            "scope": "text",
            "op": "text",
            "namespace": "text",
            "key": "text",
            "cluster_time": "timestamp with time zone",
            "event": "jsonb",
        }

    @property
    def written(self) -> Collection[str]:
        return self.columns.keys() - {"position"}

    @property
    def writes(self) -> Sequence[tuple[bytes, Sequence[Any]]]:
        """The statement that stores rows, with parameters that store none."""
        return ((self.append, ("", *([],) * 6)),)

    @property
    def create(self) -> bytes:
        of_columns = [f"{quoted(name)} {kind}" for name, kind in self.columns.items()]
        of_columns[0] += " GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
        definitions = ", ".join(of_columns)
        return f"CREATE TABLE {self._table} ({definitions})".encode()

    @cached_property
    def append(self) -> bytes:
        """Gets the scope, and arrays: ids, operations, namespaces, keys, seconds, events."""
        arrays = ("text", "text", "text", "text", "float8", "bytea")
        parameters = ", ".join(f"%b::{kind}[]" for kind in arrays)
        return (
            f"INSERT INTO {self._table} "
            "(scope, id, op, namespace, key, cluster_time, event) "
            "SELECT %b, i, o, n, k, to_timestamp(s), convert_from(e, 'UTF8')::jsonb "
            f"FROM unnest({parameters}) WITH ORDINALITY AS r(i, o, n, k, s, e, number) "
            "ORDER BY number"
        ).encode()
