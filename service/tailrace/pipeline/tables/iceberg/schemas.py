"""Columns of a table as Iceberg has them, and back.

The metadata of a column (:mod:`tailrace.pipeline.typed_columns`) is JSON in its ``doc``.
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

from tailrace.errors import PipelineRefused
from tailrace.pipeline.table_schema import StoredType, TableField, TableSchema
from tailrace.pipeline.tables.port import Table

_FIRST_PARTITION_ID = 1000
"""The lowest id of a partition field (https://iceberg.apache.org/spec/#partition-specs)."""

_TYPES: Mapping[str, I.IcebergType] = {
    StoredType.STRING: I.StringType(),
    StoredType.LONG: I.LongType(),
    StoredType.DOUBLE: I.DoubleType(),
    StoredType.BOOLEAN: I.BooleanType(),
    StoredType.TIMESTAMP: I.TimestamptzType(),
    StoredType.DECIMAL: I.DecimalType(38, 10),
}

_NAMES: Mapping[I.IcebergType, str] = {stored: name for name, stored in _TYPES.items()}


def type_of(field: TableField) -> I.IcebergType:
    return _TYPES[field.type]


def doc_of(field: TableField) -> str | None:
    return json.dumps(dict(field.metadata), sort_keys=True) if field.metadata else None


def iceberg_schema(schema: TableSchema) -> Schema:
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


def table_schema(schema: Schema, where: object) -> TableSchema:
    """Raises :class:`PipelineRefused` for a column of a type that no table of a pipeline has."""
    fields = []
    for field in schema.fields:
        if field.field_type not in _NAMES:
            raise PipelineRefused(
                f"{where}: its column {field.name} has the type {field.field_type}, which no table "
                "of this pipeline has. Drop the table: the next run makes it again"
            )
        fields.append(TableField(field.name, _NAMES[field.field_type], _metadata(field.doc)))
    return TableSchema.of(fields)


def _metadata(doc: str | None) -> dict[str, Any]:
    """The metadata of a column; empty if somebody else wrote the text."""
    with suppress(ValueError):
        found = json.loads(doc or "{}")
        return found if isinstance(found, dict) else {}
    return {}


def add_fields(update: UpdateSchema, fields: Iterable[TableField]) -> None:
    for field in fields:
        update.add_column((field.name,), type_of(field), doc_of(field))


def replace_fields(update: UpdateSchema, before: TableSchema, after: TableSchema) -> None:
    """Makes the columns those of ``after``, for files that are all new."""
    wanted = {field.name: field for field in after}
    same = {field.name for field in before if wanted.get(field.name) == field}
    for field in before:
        if field.name not in same:
            update.delete_column((field.name,))
    add_fields(update, (field for field in after if field.name not in same))
