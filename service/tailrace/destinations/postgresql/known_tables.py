"""The tables that a handler knows, with the automatic columns that they have got."""

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.destinations.postgresql.automatic_columns import (
    AutomaticColumns,
    Choice,
    Fields,
    add_columns,
    table_columns,
    take_types,
)
from tailrace.destinations.postgresql.column_types import column_name
from tailrace.destinations.postgresql.connection import Connection, transaction
from tailrace.destinations.postgresql.rows import RowMaker
from tailrace.destinations.postgresql.statements import TableStatements
from tailrace.destinations.postgresql.tables import lock_names
from tailrace.destinations.postgresql.values import Values

_MOST_LEFT_OUT = 1_000
"""After so many fields of a table that cannot be columns, no others are looked for."""


class KnownTables:
    """``limit``: how many automatic columns a table gets; 0: none, and nothing is read."""

    def __init__(self, schema: str, maker: RowMaker, limit: int, *, soft: bool) -> None:
        self._schema = schema
        self._limit = limit
        self._soft = soft
        self._replace_nul = maker.replace_nul
        self._paths = maker.values.paths
        names = map(column_name, self._paths)
        self._declared = dict(zip(names, maker.values.columns, strict=True))
        self._known: dict[str, TableStatements] = {}
        self._left_out: dict[str, set[bytes]] = {}
        """By table, the fields that cannot be columns."""

    @property
    def grow(self) -> bool:
        """Whether tables get automatic columns."""
        return self._limit > 0

    @property
    def columns(self) -> Mapping[str, Sequence[str]]:
        """The automatic columns, by table."""
        known = dict(self._known)  # a thread that makes rows may add a table
        tables = {name: each.automatic.values.paths for name, each in known.items()}
        return {name: columns for name, columns in tables.items() if columns}

    def of(self, name: str) -> TableStatements:
        """A table as it is written."""
        table = self._known.get(name)
        if table is None:
            table = self._known[name] = self._made_of(name, {})
        return table

    async def read(self, connection: Connection, name: str) -> TableStatements:
        """A table as it is now: another process may have added columns."""
        if not self.grow:
            return self.of(name)
        there = await table_columns(connection, self._schema, name, self._declared)
        return self._made_of(name, there.automatic)

    async def renewed(self, connection: Connection, name: str) -> TableStatements:
        """The same; from now on it is written so."""
        table = self._known[name] = await self.read(connection, name)
        return table

    async def extend(self, connection: Connection, name: str, fields: Fields, log: Any) -> None:
        """Adds columns for fields, unless another process has added them."""
        async with transaction(connection):
            await lock_names(connection)
            there = await table_columns(connection, self._schema, name, self._declared)
            choice = Choice.of(fields, there, self._limit)
            await add_columns(connection, self._schema, name, choice.added)
        choice.report(log, name)
        self._left_out.setdefault(name, set()).update(choice.left_out)
        self._known[name] = self._made_of(name, {**there.automatic, **choice.added})

    async def adopt(self, connection: Connection, source: str, name: str) -> None:
        """Gives a table whose rows are gone the automatic columns of the one whose rows it gets."""
        if not self.grow:
            return
        await lock_names(connection)
        theirs = await table_columns(connection, self._schema, source, self._declared)
        ours = await table_columns(connection, self._schema, name, self._declared)
        added: dict[str, str] = {}
        others: dict[str, str] = {}
        for each, kind in theirs.automatic.items():
            if each in ours.automatic:
                if ours.automatic[each] != kind:
                    others[each] = kind
            elif each not in ours.names and len(ours.automatic) + len(added) < self._limit:
                added[each] = kind
        await add_columns(connection, self._schema, name, added)
        await take_types(connection, self._schema, name, others)
        await self.renewed(connection, source)
        await self.renewed(connection, name)

    def _made_of(self, name: str, automatic: Mapping[str, str]) -> TableStatements:
        values = Values(automatic, replace_nul=self._replace_nul)
        left_out, known = self._left_out.get(name, set()), None
        if len(automatic) < self._limit and len(left_out) < _MOST_LEFT_OUT:
            known = {path.encode() for path in (*automatic, *self._paths)} | left_out
        columns = [*self._declared.items(), *zip(automatic, values.columns, strict=True)]
        made = AutomaticColumns(values, known)
        return TableStatements(self._schema, name, columns, made, soft=self._soft)
