"""Events as rows with the columns of the table ``changes``, made by the code that makes that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.handlers.parquet.columns import cut
from tailrace.lake.segment import COLUMNS, Documents, Kind
from tailrace.pipeline.decoding import decode
from tailrace.pipeline.position import position
from tailrace.pipeline.schemas import CHANGES

SCHEMA = StructType([column for column in CHANGES if column.name != "segment"])
"""Those of ``changes`` but for ``segment``: nothing has landed here."""

_DERIVED = ("cluster_time", "position")
_DECODED = StructType([column for column in SCHEMA if column.name not in _DERIVED])
_TYPES = {
    Kind.INT64: pa.int64(),
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.MILLISECONDS: pa.timestamp("ms", "UTC"),
    Kind.DOCUMENT: pa.string(),
}
_BYTES = {kind: pa.binary() for kind in (Kind.STRING, Kind.BINARY, Kind.DOCUMENT)}
"""What a column is made of, where that is not numbers."""

_ROWS = 2000
"""Rows of a batch of Arrow."""


def rows(events: Sequence[bytes], scope: str, ordinal: int) -> Iterator[pa.RecordBatch]:
    """The events as batches of Arrow, in order; ``ordinal`` is that of the first.

    Raises ``ValueError`` for what is no change event.
    """
    decoded = to_arrow_schema(_DECODED, timezone="UTC")
    for first in range(0, len(events), _ROWS):
        landed = _landed(events[first : first + _ROWS], scope, ordinal + first)
        for batch in decode([landed], documents=Documents.CANONICAL, schema=decoded):
            yield _with_times(batch)


def _landed(events: Sequence[bytes], scope: str, ordinal: int) -> pa.RecordBatch:
    """What would be read of a segment of these events."""
    count = len(events)
    columns = {
        "scope": [scope.encode()] * count,
        "segment": [0] * count,
        "ordinal": range(ordinal, ordinal + count),
        **cut(events, Documents.CANONICAL),
    }
    return pa.RecordBatch.from_pydict(
        {
            name: pa.array(columns[name], _BYTES.get(kind, pa.int64())).cast(_TYPES[kind])
            for name, kind in COLUMNS.items()
        }
    )


def _with_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that the pipeline derives in SQL."""
    schema = to_arrow_schema(SCHEMA, timezone="UTC")
    seconds = batch.column("cluster_seconds")
    pairs = zip(seconds.to_pylist(), batch.column("cluster_increment").to_pylist(), strict=True)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["cluster_time"] = seconds.cast(pa.timestamp("s", "UTC"))
    columns["position"] = pa.array(
        [None if time is None else position(time, increment) for time, increment in pairs],
        pa.int64(),
    )
    return pa.RecordBatch.from_arrays(
        [columns[field.name].cast(field.type) for field in schema], schema=schema
    )
