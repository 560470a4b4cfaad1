"""Declares typed columns: in the log, for views and new tables, and in the tables that are there.

A table keeps a column that is no longer declared, and fills it, until it is rebuilt or its columns
are republished (:mod:`tailrace.pipeline.republication`). So a column is never half filled.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.config.pipeline import REST, TypedColumn
from tailrace.pipeline.log_snapshot import (
    CURRENT_STATE,
    HISTORY_STATE,
    declared_columns,
)
from tailrace.pipeline.schemas import table_of
from tailrace.pipeline.tables import TableStore, TableVersion
from tailrace.pipeline.typed_columns import (
    COLUMNS,
    Columns,
    missing_columns,
    stored_columns,
    stored_fields,
)

Declaration = Mapping[str, Mapping[str, TypedColumn]]
"""Columns by ``database.collection``, as the file has them."""


def by_table(declaration: Declaration) -> dict[str, Mapping[str, TypedColumn]]:
    """The columns by the names of tables."""
    return {name if name == REST else table_of(name): each for name, each in declaration.items()}


def named(columns: Mapping[str, TypedColumn]) -> dict[str, TypedColumn]:
    """Without ``*``, all other fields."""
    return {name: column for name, column in columns.items() if name != REST}


def check(tables: TableStore, lake: str, declaration: Declaration) -> None:
    """Raises :class:`PipelineRefused` if a table has one of the columns as another type."""
    for name, columns in by_table(declaration).items():
        for _ in _lacking(tables, lake, name, named(columns)):
            pass


def declare(log: TableVersion, declaration: Declaration, *, rebuild: bool) -> TableVersion:
    """Adds columns to the tables that lack them, and stores the declaration in the log.

    A rebuild makes every table again, with the declared columns. Returns the log after it.
    """
    before = declared_columns(log)
    if not rebuild:
        for name, columns in by_table(declaration).items():
            wanted = named(columns)
            if wanted == before.get(name, {}):
                continue
            for table, missing in _lacking(log.table.store, log.table.lake, name, wanted):
                table.add_columns(stored_fields(missing))
    return log.set_properties({COLUMNS: _record(declaration)})


def is_declared(log: TableVersion, declaration: Declaration) -> bool:
    """Whether the log has this declaration."""
    return log.property(COLUMNS) == _record(declaration)


def _record(declaration: Declaration) -> dict[str, dict[str, Any]]:
    return {
        name: {key: column.model_dump() for key, column in columns.items()}
        for name, columns in by_table(declaration).items()
    }


def _lacking(
    tables: TableStore, lake: str, name: str, columns: Columns
) -> Iterator[tuple[TableVersion, Columns]]:
    for kind in (CURRENT_STATE, HISTORY_STATE):
        table = kind.table(tables, lake, name).load()
        if table.exists:
            stored = stored_columns(table.table.schema)
            yield table, missing_columns(table.table.location, stored, columns)
