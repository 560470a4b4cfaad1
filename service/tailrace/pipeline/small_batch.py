"""Decodes a small batch of segments in this process: a Spark job would cost about a second."""

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace.errors import SegmentUnreadable
from tailrace.lake.segment import COLUMNS
from tailrace.pipeline.decoding import decode
from tailrace.pipeline.files import parquet_file
from tailrace.pipeline.lineage import position_of
from tailrace.pipeline.schemas import CHANGES, DECODED
from tailrace.pipeline.segments import LandedSegment

ROWS = 20_000
"""A small batch has no more events."""

_BYTES = 16 * 2**20
"""It has no more bytes when it is read: compressed, large documents may take little room."""

_CHUNK = 500
"""How many events are decoded at once."""


def rows_of(batch: Sequence[LandedSegment]) -> pa.Table | None:
    """The rows of the log; ``None`` if the batch is not small, or has repeated rows.

    Raises :class:`SegmentUnreadable`.
    """
    if sum(each.footer.rows for each in batch) > ROWS or any(each.repeats for each in batch):
        return None
    decoded: list[pa.RecordBatch] = []
    schema = to_arrow_schema(DECODED, timezone="UTC")
    left = _BYTES
    for segment in batch:
        if not segment.footer.rows:
            continue
        rows = _read(segment, left)
        if rows is None:
            return None
        left -= rows.nbytes
        chunks = rows.to_batches(max_chunksize=_CHUNK)
        try:
            decoded += decode(chunks, documents=segment.footer.documents, schema=schema)
        except ValueError as error:
            raise SegmentUnreadable(f"{error}; nothing was committed") from error
    made = pa.Table.from_batches(decoded, schema)
    seconds = made["cluster_seconds"]
    made = made.append_column("position", position_of(seconds, made["cluster_increment"]))
    microseconds = pc.multiply(seconds, 1_000_000)
    made = made.append_column("cluster_time", microseconds.cast(pa.timestamp("us", "UTC")))
    return made.select(CHANGES.names)


def _read(segment: LandedSegment, most: int) -> pa.Table | None:
    """A segment's rows; ``None`` if they have more bytes than ``most``."""
    with parquet_file(segment.file, SegmentUnreadable) as reader:
        groups = (reader.metadata.row_group(at) for at in range(reader.num_row_groups))
        is_small = sum(each.total_byte_size for each in groups) <= most
        return reader.read([*COLUMNS]) if is_small else None
