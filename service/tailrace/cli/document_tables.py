"""The tables of a pipeline, for processes that need no pipeline."""

from collections.abc import Sequence

from tailrace.destination.tables import CurrentTables
from tailrace.errors import PipelineRefused, how_to_install
from tailrace.why.answer import TableState


def find_document(
    tables_at: str, scope: str, collection: tuple[str, str], element: bytes, seconds: float
) -> tuple[str, Sequence[TableState]]:
    """:class:`tailrace.why.lakes_and_tables.FindDocument`. The first call imports ``pipeline``."""
    try:
        from tailrace.pipeline import document_search
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    return document_search.find_document(tables_at, scope, collection, element, seconds)


def open_tables(tables_at: str, lake: str) -> CurrentTables | None:
    """The tables at a location, if they are of this lake. Blocks. The first call imports
    ``pipeline``. Raises :class:`PipelineRefused`."""
    try:
        from tailrace.pipeline.current_tables import CurrentStateTables as Found
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    return Found.of(tables_at, lake)


def _not_installed(error: ModuleNotFoundError) -> PipelineRefused:
    return PipelineRefused(f"this process needs {error.name}: {how_to_install('pipeline')}")
