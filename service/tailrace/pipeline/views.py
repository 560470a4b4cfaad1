"""Tables for queries: what waits merged in, documents as VARIANT, fields as typed columns.

    from tailrace.pipeline import views

    orders = views.current(spark, "data/tables", "shop.orders")
    orders.selectExpr("document:customer.name").show()

``current`` is exact to the end of the log even where its table waits to be published.
"""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame, SparkSession

from tailrace.errors import PipelineRefused
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.columns import typed
from tailrace.pipeline.delta import lake_of
from tailrace.pipeline.location import Location
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE, TableKind, log_snapshot_of
from tailrace.pipeline.names import table_name
from tailrace.pipeline.publish import merged


def current(
    spark: SparkSession, tables: str, collection: str, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """The live documents of a collection (``database.collection``), to the end of the log.

    ``columns`` maps paths of fields to types, in the place of those that ``pipeline.columns``
    declares. A value that does not fit is null in its column and stands in ``_rescued``
    (:func:`tailrace.pipeline.columns.typed`).
    """
    return _view(spark, tables, collection, CURRENT_STATE, columns)


def history(
    spark: SparkSession, tables: str, collection: str, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """Every version of the documents of a collection, to the end of the log; else the same."""
    return _view(spark, tables, collection, HISTORY_STATE, columns)


def _view(
    spark: SparkSession,
    tables: str,
    collection: str,
    kind: TableKind,
    columns: Mapping[str, str] | None,
) -> DataFrame:
    location = Location.of(tables)
    try:
        identity = lake_of(DeltaTable((location / "changes").uri))
    except TableNotFoundError:
        identity = None
    if identity is None:
        raise PipelineRefused(f"{tables}: there are no tables of this pipeline")
    log = changes_table(location, identity).load()
    scopes = sorted({each.partition["scope"] or "" for each in log.files})
    database, _, name = collection.partition(".")
    table = table_name(database, name)
    log_snapshot = log_snapshot_of(spark, location, log, scopes, [kind])
    declared = log_snapshot.columns(table) if columns is None else columns
    return typed(merged(kind, table, log_snapshot), declared)
