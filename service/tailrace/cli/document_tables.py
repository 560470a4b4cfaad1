"""The pipeline's search for a document in its tables, for processes that need no pipeline."""

from collections.abc import Sequence

from tailrace.errors import PipelineRefused, how_to_install
from tailrace.why.answer import TableState


def find_document(
    tables_at: str, scope: str, collection: tuple[str, str], element: bytes, seconds: float
) -> tuple[str, Sequence[TableState]]:
    """:class:`tailrace.why.lakes_and_tables.FindDocument`. The first call imports ``pipeline``."""
    try:
        from tailrace.pipeline import document_search
    except ModuleNotFoundError as error:
        message = f"this process needs {error.name}: {how_to_install('pipeline')}"
        raise PipelineRefused(message) from error
    return document_search.find_document(tables_at, scope, collection, element, seconds)
