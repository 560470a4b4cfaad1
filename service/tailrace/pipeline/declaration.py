"""Declares typed columns: in the log, for views and new tables, and in the tables that are there.

A table keeps a column that is no longer declared, and fills it, until it is rebuilt or its columns
are republished (:mod:`tailrace.pipeline.republication`). So a column is never half filled.
"""

from collections.abc import Iterator, Mapping

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
    stored_field,
)

Declaration = Mapping[str, Columns]
"""Columns by ``database.collection``."""


def by_table(declaration: Declaration) -> dict[str, Columns]:
    """The columns by the names of tables."""
    return {table_of(name): columns for name, columns in declaration.items()}


def check(tables: TableStore, lake: str, declaration: Declaration) -> None:
    """Raises :class:`PipelineRefused` if a table has one of the columns as another type."""
    for name, columns in by_table(declaration).items():
        for _ in _lacking(tables, lake, name, columns):
            pass


def declare(log: TableVersion, declaration: Declaration, *, rebuild: bool) -> TableVersion:
    """Adds columns to the tables that lack them, and stores the declaration in the log.

    A rebuild makes every table again, with the declared columns. Returns the log after it.
    """
    columns_by_table = by_table(declaration)
    before = declared_columns(log)
    if not rebuild:
        for name, columns in columns_by_table.items():
            if columns == before.get(name):
                continue
            for table, missing in _lacking(log.table.store, log.table.lake, name, columns):
                table.add_columns([stored_field(*each) for each in missing.items()])
    stored = {
        name: {key: column.model_dump() for key, column in columns.items()}
        for name, columns in columns_by_table.items()
    }
    return log.set_properties({COLUMNS: stored})


def _lacking(
    tables: TableStore, lake: str, name: str, columns: Columns
) -> Iterator[tuple[TableVersion, Columns]]:
    for kind in (CURRENT_STATE, HISTORY_STATE):
        table = kind.table(tables, lake, name).load()
        if table.exists:
            stored = stored_columns(table.table.schema)
            yield table, missing_columns(table.table.location, stored, columns)
