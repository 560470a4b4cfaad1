"""The tables of a pipeline, for processes that need no pipeline."""

from collections.abc import Sequence

from tailrace.config.catalog import TablesAt
from tailrace.destination.tables import CurrentTables
from tailrace.errors import PipelineRefused, how_to_install
from tailrace.why.answer import TableState


def find_document(
    tables_at: TablesAt, scope: str, collection: tuple[str, str], element: bytes, seconds: float
) -> tuple[str, Sequence[TableState]]:
    """:class:`tailrace.why.lakes_and_tables.FindDocument`. The first call imports ``pipeline``."""
    try:
        from tailrace.pipeline import document_search
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    return document_search.find_document(tables_at, scope, collection, element, seconds)


def open_tables(tables_at: TablesAt | None, lake: str) -> CurrentTables | None:
    """:class:`tailrace.why.lakes_and_tables.OpenTablesAt`. The first call imports ``pipeline``."""
    if tables_at is None:
        return None
    try:
        from tailrace.pipeline.current_tables import CurrentStateTables as Found
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    return Found.of(tables_at, lake)


def _not_installed(error: ModuleNotFoundError) -> PipelineRefused:
    return PipelineRefused(f"this process needs {error.name}: {how_to_install('pipeline')}")
