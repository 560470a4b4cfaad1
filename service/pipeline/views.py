"""Tables for queries: what waits merged in, documents as VARIANT, fields as typed columns.

    from service.pipeline import views

    orders = views.current(spark, "data/tables", "shop.orders", {"total": "decimal"})
    orders.selectExpr("document:customer.name", "total").show()

``current`` is exact to the end of the log even where its table waits to be published.
"""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame, SparkSession

from service.errors import PipelineRefused
from service.pipeline.changes import changes_table
from service.pipeline.delta import lake_of
from service.pipeline.landed import CURRENT_STATE, HISTORY_STATE, Kind, landed_of
from service.pipeline.location import Location
from service.pipeline.names import table_name
from service.pipeline.state import merged

_TYPES = {
    "string": ("", "STRING", "STRING"),
    "long": ("", "BIGINT", "BIGINT"),
    "double": ("", "DOUBLE", "DOUBLE"),
    "boolean": ("", "BOOLEAN", "BOOLEAN"),
    "timestamp": ("['$date']", "BIGINT", "BIGINT"),
    "decimal": ("['$numberDecimal']", "STRING", "DECIMAL(38, 10)"),
}


def current(
    spark: SparkSession, tables: str, collection: str, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """The live documents of a collection, to the end of the log.

    ``columns`` maps paths of fields to types (those of ``pipeline.columns``). A value of another
    type is null in its column and stands in ``_rescued``, a JSON object by path.
    """
    return typed(_state(spark, tables, collection, CURRENT_STATE), columns or {})


def history(
    spark: SparkSession, tables: str, collection: str, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """Every version of the documents of a collection, to the end of the log."""
    return typed(_state(spark, tables, collection, HISTORY_STATE), columns or {})


def typed(rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Rows with ``document`` as VARIANT (its text is ``json``), and typed columns."""
    rows = rows.selectExpr(
        *("document AS json" if name == "document" else name for name in rows.columns),
        f"parse_json({_relaxed('document')}) AS document",
    )
    if not columns:
        return rows
    made, rescued = [], []
    for path, kind in columns.items():
        value = f"variant_get(document, '{_path(path)}')"
        column = _column(path, kind)
        made.append(f"{column} AS `{path}`")
        rescued.append(
            f"IF({value} IS NOT NULL AND NOT is_variant_null({value}) AND {column} "
            f"IS NULL, named_struct('path', '{path}', 'value', to_json({value})), NULL)"
        )
    kept = f"filter(array({', '.join(rescued)}), each -> each IS NOT NULL)"
    pairs = f"map_from_entries({kept})"
    return rows.selectExpr("*", *made, f"IF(size({kept}) > 0, to_json({pairs}), NULL) AS _rescued")


def _column(path: str, kind: str) -> str:
    """A field as a column of a type; null where it is of another."""
    inner, type_, cast = _TYPES[kind]
    value = f"variant_get(document, '{_path(path)}{inner}')".replace("['$", '["$').replace(
        "']", '"]'
    )
    seen = f"schema_of_variant({value})"
    if kind == "double":
        fits = f"({seen} IN ('DOUBLE', 'BIGINT') OR {seen} LIKE 'DECIMAL%')"
    else:
        fits = f"{seen} = '{type_}'"
    found = f"IF({fits}, try_variant_get({value}, '$', '{cast}'), NULL)"
    return f"timestamp_millis({found})" if kind == "timestamp" else found


def _relaxed(text: str) -> str:
    """Canonical numbers as plain ones. Inside a string every quote is escaped: none matches."""
    for kind in ("Int", "Long", "Double"):
        text = f"regexp_replace({text}, r'\\{{\"\\$number{kind}\":\"({_PLAIN})\"\\}}', '$1')"
    return text


_PLAIN = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"


def _path(path: str) -> str:
    return "$" + "".join(f'["{part}"]' for part in path.split("."))


def _state(spark: SparkSession, tables: str, collection: str, kind: Kind) -> DataFrame:
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
    return merged(kind, table_name(database, name), landed_of(spark, location, log, scopes, [kind]))
