"""Columns of Spark as Iceberg has them, and back.

What Spark has in a column's metadata (:mod:`tailrace.pipeline.typed_columns`) is JSON in its
``doc``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from pyiceberg import types as I  # noqa: N812
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import types as T  # noqa: N812

from tailrace.errors import PipelineRefused
from tailrace.pipeline.tables.port import Table

_FIRST_PARTITION_ID = 1000
"""The lowest id of a partition field (https://iceberg.apache.org/spec/#partition-specs)."""

_TYPES: Mapping[str, I.IcebergType] = {
    "string": I.StringType(),
    "bigint": I.LongType(),
    "double": I.DoubleType(),
    "boolean": I.BooleanType(),
    "timestamp": I.TimestamptzType(),
    "decimal(38,10)": I.DecimalType(38, 10),
}
"""By the names that Spark gives its types."""

_SPARK: Mapping[I.IcebergType, T.DataType] = {
    I.StringType(): T.StringType(),
    I.LongType(): T.LongType(),
    I.DoubleType(): T.DoubleType(),
    I.BooleanType(): T.BooleanType(),
    I.TimestamptzType(): T.TimestampType(),
    I.DecimalType(38, 10): T.DecimalType(38, 10),
}


def type_of(field: T.StructField) -> I.IcebergType:
    return _TYPES[field.dataType.simpleString()]


def doc_of(field: T.StructField) -> str | None:
    return json.dumps(field.metadata, sort_keys=True) if field.metadata else None


def iceberg_schema(schema: T.StructType) -> Schema:
    """Its ids are those that every catalog assigns to a new table: 1 for the first column, ..."""
    return Schema(
        *(
            I.NestedField(at, field.name, type_of(field), required=False, doc=doc_of(field))
            for at, field in enumerate(schema, 1)
        )
    )


def partition_spec(table: Table, schema: Schema) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(
                schema.find_field(name).field_id,
                _FIRST_PARTITION_ID + at,
                IdentityTransform(),
                name,
            )
            for at, name in enumerate(table.partition_by)
        )
    )


def spark_schema(schema: Schema, where: object) -> T.StructType:
    """Raises :class:`PipelineRefused` for a column of a type that no table of a pipeline has."""
    fields = []
    for field in schema.fields:
        if field.field_type not in _SPARK:
            raise PipelineRefused(
                f"{where}: its column {field.name} has the type {field.field_type}, which no table "
                "of this pipeline has. Drop the table: the next run makes it again"
            )
        fields.append(
            T.StructField(field.name, _SPARK[field.field_type], True, _metadata(field.doc))
        )
    return T.StructType(fields)


def _metadata(doc: str | None) -> dict[str, Any]:
    """The metadata of a column; empty if somebody else wrote the text."""
    with suppress(ValueError):
        found = json.loads(doc or "{}")
        return found if isinstance(found, dict) else {}
    return {}


def add_fields(update: UpdateSchema, fields: Iterable[T.StructField]) -> None:
    for field in fields:
        update.add_column((field.name,), type_of(field), doc_of(field))


def replace_fields(update: UpdateSchema, before: T.StructType, after: T.StructType) -> None:
    """Makes the columns those of ``after``, for files that are all new."""
    wanted = {field.name: field for field in after}
    same = {field.name for field in before if wanted.get(field.name) == field}
    for field in before:
        if field.name not in same:
            update.delete_column((field.name,))
    add_fields(update, (field for field in after if field.name not in same))
