"""Columns of every kind, pages of them, and the files that they make."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.lake.parquet.column import Column, ColumnKind, Values
from tailrace.lake.parquet.writer import ParquetWriter

Page = Mapping[str, Values]

COLUMNS = [
    Column(
        f"{kind.name}_{required}_{dictionary}".lower(),
        kind,
        required,
        dictionary,
        statistics=kind is not ColumnKind.BINARY,
    )
    for kind in ColumnKind
    for required in (False, True)
    for dictionary in (False, True)
]
"""Every kind: with nulls and without, with a dictionary and without."""

METADATA = {b"tailrace": b'{"a": 1}', b"other": b""}

_TYPES = {
    ColumnKind.INT64: pa.int64(),
    ColumnKind.BINARY: pa.binary(),
    ColumnKind.STRING: pa.string(),
    ColumnKind.MILLISECONDS: pa.timestamp("ms", "UTC"),
}


def schema(columns: Sequence[Column]) -> pa.Schema:
    """What a reader is to find."""
    return pa.schema(
        pa.field(column.name, _TYPES[column.kind], nullable=not column.required)
        for column in columns
    )


def written(columns: Sequence[Column], *pages: Page, **settings: Any) -> bytes:
    writer = ParquetWriter(columns, **settings)
    for page in pages:
        writer.write(dict(page))
    return b"".join(writer.close(METADATA))


def one(column: Column, *pages: Values, **settings: Any) -> bytes:
    """A file of one column."""
    return written([column], *({column.name: page} for page in pages), **settings)


def file(data: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(data))


def read(data: bytes) -> dict[str, list[Any]]:
    """Each column's values as they were given to the writer, after a look at every byte."""
    table = file(data).read()
    table.validate(full=True)
    return {
        name: table[name].cast(_raw(table.schema.field(name).type)).to_pylist()
        for name in table.column_names
    }


def some_pages() -> list[Page]:
    """Pages of many rows, with all that a column may turn into from one to the next."""
    chance = random.Random(7)

    def value(kind: ColumnKind, variety: int) -> Any:
        number = chance.randrange(variety)
        return number if kind.numeric else b"w%d" % number * chance.randrange(3)

    result = []
    for variety, nulls in [(1, 0.0), (10, 0.5), (200, 0.0), (5000, 0.1), (5, 1.0), (5000, 0.0)]:
        page: dict[str, Any] = {}
        for column in COLUMNS:
            share = 0.0 if column.required else nulls
            page[column.name] = [
                None if chance.random() < share else value(column.kind, variety)
                for _ in range(1001)
            ]
        result.append(page)
    return result


def together(*pages: Page) -> dict[str, list[Any]]:
    """The pages' values, one after the other."""
    return {name: [value for page in pages for value in page[name]] for name in pages[0]}


def _raw(kind: pa.DataType) -> pa.DataType:
    return {pa.string(): pa.binary()}.get(kind, pa.int64() if pa.types.is_temporal(kind) else kind)
