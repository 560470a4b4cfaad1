"""Views for queries, exact to the end of the log: documents as VARIANT, fields as columns."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tailrace.config.pipeline import columns_of
from tailrace.errors import PipelineRefused
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.location import Location
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE, TableKind, log_snapshot_of
from tailrace.pipeline.publish import merged
from tailrace.pipeline.schemas import table_of
from tailrace.pipeline.tables import DeltaStore, TableStore
from tailrace.pipeline.typed_columns import RESCUED, variant, with_columns


def current(
    spark: SparkSession,
    tables: str | TableStore,
    collection: str,
    columns: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The live documents of a collection (``database.collection``).

    ``tables``: the directory of Delta tables, or what
    :func:`tailrace.pipeline.tables.open_store` opens. ``columns``, in the form of
    ``pipeline.columns``, replace those that the table has; a mistake in them is a ``ValueError``.
    A value that does not fit is null, and ``_rescued`` has it.
    """
    return _view(CURRENT_STATE, spark, tables, collection, columns)


def history(
    spark: SparkSession,
    tables: str | TableStore,
    collection: str,
    columns: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Every version of the documents of a collection; see :func:`current`."""
    return _view(HISTORY_STATE, spark, tables, collection, columns)


def _view(
    kind: TableKind,
    spark: SparkSession,
    tables: str | TableStore,
    collection: str,
    columns: Mapping[str, Any] | None,
) -> DataFrame:
    store = DeltaStore(Location.of(tables)) if isinstance(tables, str) else tables
    identity = store.lake("changes")
    if identity is None:
        raise PipelineRefused(f"{store.location}: there are no tables of this pipeline")
    log = changes_table(store, identity).load()
    scopes = sorted({each.partition["scope"] or "" for each in log.files})
    log_snapshot = log_snapshot_of(spark, store, log, scopes, [kind])
    rows = merged(kind, table_of(collection), log_snapshot)
    if columns is not None:
        own = [name for name in kind.schema.names if name != RESCUED]
        rows = with_columns(rows, "document", columns_of(columns), own)
    typed = [name for name in rows.columns if name not in kind.schema.names]
    return rows.selectExpr(
        *("document AS json" if name == "document" else name
          for name in kind.schema.names if name != RESCUED),
        f"{variant('document')} AS document",
        *(f"`{name}`" for name in typed),
        RESCUED,
    )  # fmt: skip
