"""Finds a document in the tables of its collection. Starts no Spark."""

from collections.abc import Sequence
from dataclasses import replace

from bson.timestamp import Timestamp

from tailrace.config.catalog import TablesAt
from tailrace.errors import PipelineRefused
from tailrace.event.bson import encoded
from tailrace.event.extended_json import to_json
from tailrace.pipeline.decoding import key_of
from tailrace.pipeline.schemas import CURRENT, HISTORY, table_name
from tailrace.pipeline.tables import Table, TableVersion, open_store, published_at
from tailrace.why.answer import TableState

_ROW = ("operation", "cluster_seconds", "cluster_increment", "ordinal")


def find_document(
    tables_at: TablesAt, scope: str, collection: tuple[str, str], element: bytes, seconds: float
) -> tuple[str, Sequence[TableState]]:
    """The identity of the lake, and the state of ``current`` and ``history`` of a collection.

    ``tables_at``: where the tables are. ``element``:
    :func:`tailrace.event.document_key.identity` of the document, whose row is looked up in
    ``current`` for about ``seconds``. Blocks. Raises :class:`PipelineRefused`.
    """
    store = open_store(tables_at)
    lake = store.lake("changes")
    if lake is None:
        raise PipelineRefused(f"{store.location}: there are no tables of this pipeline")
    name = table_name(*collection)
    current = Table(store, f"current/{name}", CURRENT, lake).load()
    history = Table(store, f"history/{name}", HISTORY, lake).load()
    states = [_with_row(current, scope, element, seconds)]
    if history.exists:
        states.append(_state(history, scope))
    return lake, states


def _state(table: TableVersion, scope: str) -> TableState:
    name = table.table.name
    return TableState(name, table.version, published_at(table), table.segment(scope))


def _with_row(table: TableVersion, scope: str, element: bytes, seconds: float) -> TableState:
    key = key_of(to_json(encoded(element), canonical=True)) or ""
    search = table.row_with("key", key, *_ROW, seconds=seconds)
    state = _state(table, scope)
    if search.row is None:
        if search.searched == search.files:
            return replace(state, has_document=False)
        message = f"only {search.searched} of its {search.files} files were searched"
        return replace(state, unknown=f"{message}: ask with more --seconds")
    row = search.row
    second = row["cluster_seconds"]
    return replace(
        state,
        has_document=True,
        operation=row["operation"],
        cluster_time=None if second is None else Timestamp(second, row["cluster_increment"] or 0),
        ordinal=row["ordinal"],
    )
