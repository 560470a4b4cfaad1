"""What a column is: its type, and how it is to be kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tailrace.lake.parquet.thrift import Value, binary, flag, i32, struct

Values = Sequence[int | bytes | None]
"""A column's values of some rows, null where they are ``None``: numbers for :data:`INT64` and
:data:`MILLISECONDS`, bytes for the others."""

_INT64, _BYTE_ARRAY = 2, 6
_REQUIRED, _OPTIONAL = 0, 1


class ColumnKind(Enum):
    """A column's type, in the words of Parquet's logical types."""

    INT64 = "int64"
    BINARY = "binary"
    STRING = "string"
    """UTF-8, which the caller answers for."""
    MILLISECONDS = "timestamp[ms, UTC]"
    """Milliseconds since 1970 as a point in time."""

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers of 64 bits, and not bytes."""
        return self in (ColumnKind.INT64, ColumnKind.MILLISECONDS)

    @property
    def physical(self) -> Value:
        """``Type`` in parquet.thrift."""
        return i32(_INT64 if self.numeric else _BYTE_ARRAY)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a file.

    One that is ``required`` has no nulls. ``dictionary`` is for values that come again and again:
    each is kept once in a row group. ``statistics`` tell a reader the least and the greatest value
    and the number of nulls of each row group, so that it may pass over one.
    """

    name: str
    kind: ColumnKind
    required: bool = False
    dictionary: bool = False
    statistics: bool = False

    def element(self) -> Value:
        """Its ``SchemaElement`` in parquet.thrift."""
        converted, logical = _ANNOTATIONS.get(self.kind, (None, None))
        return struct(
            {
                1: self.kind.physical,
                3: i32(_REQUIRED if self.required else _OPTIONAL),
                4: binary(self.name.encode()),
                6: converted,
                10: logical,
            }
        )


_EMPTY = struct({})

# ConvertedType and LogicalType in parquet.thrift; LogicalTypes.md wants both.
_ANNOTATIONS = {
    ColumnKind.STRING: (i32(0), struct({1: _EMPTY})),
    ColumnKind.MILLISECONDS: (
        i32(9),
        struct({8: struct({1: flag(True), 2: struct({1: _EMPTY})})}),
    ),
}
