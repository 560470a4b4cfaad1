"""Reads the rows of a segment."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import SegmentUnreadable

_ROWS = 1000
"""Rows that are in memory at once, beside the segment's file."""


def segment_rows(data: bytes, columns: Sequence[str], where: str) -> Iterator[tuple[Any, ...]]:
    """The values of these columns, by row; ``data`` is the file.

    Raises :class:`SegmentUnreadable`, whose message calls the file ``where``, if it is damaged.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        for batch in file.iter_batches(_ROWS, columns=list(columns)):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise SegmentUnreadable(f"{where}: is damaged: {reason}. Restore it") from error
