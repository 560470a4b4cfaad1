"""The columns of a table, whatever its format and whatever reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa


class StoredType(StrEnum):
    """The types of this pipeline's columns, as Delta and Spark name them in JSON."""

    STRING = "string"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DECIMAL = "decimal(38,10)"


_ARROW: Mapping[Any, pa.DataType] = {
    StoredType.STRING: pa.string(),
    StoredType.LONG: pa.int64(),
    StoredType.DOUBLE: pa.float64(),
    StoredType.BOOLEAN: pa.bool_(),
    StoredType.TIMESTAMP: pa.timestamp("us", "UTC"),
    StoredType.DECIMAL: pa.decimal128(38, 10),
}


@dataclass(frozen=True, slots=True)
class TableField:
    """A column, which may be null. ``metadata``: what the table records about it."""

    name: str
    type: Any
    """A :class:`StoredType`; a column that others added may have any type, in its JSON."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """The form of Delta's log and of Spark.

        https://github.com/delta-io/delta/blob/master/PROTOCOL.md#schema-serialization-format
        """
        described = {"name": self.name, "type": self.type, "nullable": True}
        return {**described, "metadata": dict(self.metadata)}


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, in their order."""

    fields: tuple[TableField, ...]

    @classmethod
    def of(cls, fields: Iterable[TableField]) -> TableSchema:
        return cls(tuple(fields))

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> TableSchema:
        return cls.of(
            TableField(each["name"], each["type"], each["metadata"]) for each in document["fields"]
        )

    def __iter__(self) -> Iterator[TableField]:
        return iter(self.fields)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def json(self) -> dict[str, Any]:
        """See :meth:`TableField.json`."""
        return {"type": "struct", "fields": [field.json() for field in self.fields]}

    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, _ARROW[each.type]) for each in self.fields])
