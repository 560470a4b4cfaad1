"""A segment's bytes: columns and footer as one Parquet file in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from service.handlers.parquet.columns import record_batch, schema
from service.lake.segment import FOOTER_KEY, Footer

_SLAB_EVENTS = 4096
_SLAB_BYTES = 64 * 1024 * 1024
"""What is cut into columns at once: as many events as the processor's cache likes, and few enough
bytes for 32-bit offsets (an event has 16 MB, or 48 where fragments were joined)."""

_ROW_GROUP_BYTES = 4 * 1024 * 1024
"""Raw bytes with which a row group is written, at the end of a slab: so long they are in memory as
columns."""

_REPEATED = ["scope", "segment", "cluster_seconds", "operation", "database", "collection"]
_COMPARED = ["ordinal", "cluster_seconds", *_REPEATED[3:]]


def encode(events: Sequence[bytes], footer: Footer) -> bytes:
    """The file. Raises ``ValueError`` where an event is no BSON document or has no token."""
    stream = pa.BufferOutputStream()
    with pq.ParquetWriter(
        stream,
        schema(footer.documents),
        compression="zstd",
        compression_level=1,
        use_dictionary=_REPEATED,
        write_statistics=_COMPARED,
        store_schema=False,
    ) as writer:
        for group in _row_groups(events, footer):
            writer.write_table(group, row_group_size=max(group.num_rows, 1))
        writer.add_key_value_metadata({FOOTER_KEY: footer.to_json()})
    return bytes(stream.getvalue().to_pybytes())


def _row_groups(events: Sequence[bytes], footer: Footer) -> Iterator[pa.Table]:
    batches: list[pa.RecordBatch] = []
    size = 0
    for first, last, slab_size in _slabs(events):
        batches.append(
            record_batch(
                events[first:last],
                scope=footer.scope,
                segment=footer.segment,
                ordinal=footer.first_ordinal + first,
                documents=footer.documents,
            )
        )
        size += slab_size
        if size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(batches)
            batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _slabs(events: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
    """Of each slab, where it begins and ends among the events, and its bytes."""
    bounds = list(accumulate(map(len, events), initial=0))
    first = 0
    while first < len(events):
        most = min(first + _SLAB_EVENTS, len(events))
        within = bisect_right(bounds, bounds[first] + _SLAB_BYTES, first, most + 1) - 1
        last = max(within, first + 1)
        yield first, last, bounds[last] - bounds[first]
        first = last
