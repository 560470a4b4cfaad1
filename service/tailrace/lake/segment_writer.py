"""Writes events to a segment, a Parquet file in the lake.

Each page has a CRC32 in its header, which readers check if configured to (pyarrow:
``page_checksum_verification``; Spark: ``parquet.page.verify-checksum.enabled``).
:mod:`tailrace.lake.segment_metadata` protects the rest.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.event.columns import cut
from tailrace.event.snapshot_events import LastRows, of_snapshot
from tailrace.lake.segment import FOOTER_KEY, Footer
from tailrace.lake.segment_metadata import schema, with_checksum
from tailrace.lake.storage import Draft

_ROW_GROUP_EVENTS = 8192
_ROW_GROUP_BYTES = 1024 * 1024
"""The size of a row group. Each scope keeps its events in memory until the group is written."""

_REPEATED = ["scope", "segment", "cluster_seconds", "operation", "database", "collection"]
"""Columns with few distinct values, which get a dictionary in each row group."""
_COMPARED = ["ordinal", "cluster_seconds", "operation", "database", "collection"]
"""Columns with statistics: readers skip row groups by their least and greatest values."""

_ZSTD_LEVEL = 1


class SegmentWriter:
    """Writes one segment to ``draft``, a row group at a time; ``footer`` says which segment."""

    def __init__(self, draft: Draft, footer: Footer) -> None:
        self.last = b""
        """The last change. Rows of a snapshot do not count: a stream cannot resume there."""
        self.rows = LastRows()
        self._draft = draft
        self._footer = footer
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._rows = 0
        self._buffer = io.BytesIO()
        self._schema = schema(footer.documents)
        self._file = pq.ParquetWriter(
            self._buffer,
            self._schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=_REPEATED,
            write_statistics=_COMPARED,
            store_schema=False,
            write_page_checksum=True,
        )

    def __len__(self) -> int:
        return self._rows + len(self._waiting)

    @property
    def held(self) -> int:
        """Bytes of the segment's events in memory."""
        return self._draft.held + self._waiting_bytes

    def add(self, events: Iterable[bytes]) -> None:
        """Appends events. Raises ``ValueError`` if one is not a BSON document or has no token."""
        for event in events:
            if of_snapshot(event):
                self.rows.note(event)
            else:
                self.last = event
            self._waiting.append(event)
            self._waiting_bytes += len(event)
            if len(self._waiting) >= _ROW_GROUP_EVENTS or self._waiting_bytes >= _ROW_GROUP_BYTES:
                self._write_waiting()

    def write(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Writes a row group from the events' columns; text is UTF-8."""
        count, first = len(columns["token"]), self._footer.first_ordinal + self._rows
        values = {
            "scope": pa.repeat(self._footer.scope, count),
            "segment": pa.repeat(self._footer.segment, count),
            "ordinal": range(first, first + count),
            **columns,
        }
        arrays = [pa.array(values[field.name], field.type) for field in self._schema]
        batch = pa.record_batch(arrays, schema=self._schema)
        self._file.write_batch(batch, row_group_size=count)
        self._rows += count
        self._draft.write(self._written())

    def finish(self, footer: Footer) -> None:
        """Completes the file and gives it its name; raises as :meth:`Draft.finish` does."""
        if self._waiting:
            self._write_waiting()
        self._file.add_key_value_metadata({FOOTER_KEY: footer.to_json()})
        self._file.close()
        self._draft.write(with_checksum(self._written()))
        self._draft.finish()

    def discard(self) -> None:
        self._draft.discard()

    def _write_waiting(self) -> None:
        events, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self.write(cut(events, self._footer.documents))

    def _written(self) -> bytes:
        """What pyarrow has written since the last call."""
        written = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return written
