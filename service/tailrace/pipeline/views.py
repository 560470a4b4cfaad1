"""Views for queries, exact to the end of the log: documents as VARIANT, fields as columns."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from tailrace.errors import PipelineRefused
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.location import Location
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE, TableKind, log_snapshot_of
from tailrace.pipeline.publish import merged
from tailrace.pipeline.schemas import table_name
from tailrace.pipeline.tables import DeltaStore
from tailrace.pipeline.typed_columns import typed


def current(
    spark: SparkSession, tables: str, collection: str, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """The live documents of a collection (``database.collection``).

    ``columns`` (type by path) replace the columns that ``pipeline.columns`` declares. A value that
    does not fit is null in its column, and ``_rescued`` has it.
    """
    return _view(CURRENT_STATE, spark, tables, collection, columns)


def history(
    spark: SparkSession, tables: str, collection: str, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """Every version of the documents of a collection; see :func:`current`."""
    return _view(HISTORY_STATE, spark, tables, collection, columns)


def _view(
    kind: TableKind,
    spark: SparkSession,
    tables: str,
    collection: str,
    columns: Mapping[str, str] | None,
) -> DataFrame:
    store = DeltaStore(Location.of(tables))
    identity = store.lake("changes")
    if identity is None:
        raise PipelineRefused(f"{tables}: there are no tables of this pipeline")
    log = changes_table(store, identity).load()
    scopes = sorted({each.partition["scope"] or "" for each in log.files})
    database, _, name = collection.partition(".")
    table = table_name(database, name)
    log_snapshot = log_snapshot_of(spark, store, log, scopes, [kind])
    declared = log_snapshot.columns(table) if columns is None else columns
    return typed(merged(kind, table, log_snapshot), declared)
