"""A segment on its way: events in, one Parquet file out."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from service.handlers.parquet.columns import record_batch, schema
from service.lake.segment import FOOTER_KEY, Documents, Footer

_SLAB_EVENTS = 1024
_SLAB_BYTES = 1024 * 1024
"""What is cut into columns at once, and written as a row group."""

_REPEATED = ["scope", "segment", "cluster_seconds", "operation", "database", "collection"]
_COMPARED = ["ordinal", "cluster_seconds", *_REPEATED[3:]]


class Segment:
    """The file of one segment, in memory: encoded, but for less than a slab of its events.

    ``ordinal`` is that of its first event.
    """

    def __init__(self, scope: str, number: int, ordinal: int, documents: Documents) -> None:
        self._rows = 0
        self._scope = scope
        self._number = number
        self._ordinal = ordinal
        self._documents = documents
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._stream = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._stream,
            schema(documents),
            compression="zstd",
            compression_level=1,
            use_dictionary=_REPEATED,
            write_statistics=_COMPARED,
            store_schema=False,
        )

    def __len__(self) -> int:
        return self._rows + len(self._waiting)

    def add(self, events: Sequence[bytes]) -> None:
        """Appends events. Raises ``ValueError`` where one is no BSON document or has no token."""
        for event in events:
            self._waiting.append(event)
            self._waiting_bytes += len(event)
            if len(self._waiting) >= _SLAB_EVENTS or self._waiting_bytes >= _SLAB_BYTES:
                self._write()

    def close(self, footer: Footer) -> bytes:
        """The whole file. Raises as :meth:`add` does."""
        if self._waiting:
            self._write()
        self._writer.add_key_value_metadata({FOOTER_KEY: footer.to_json()})
        self._writer.close()
        return bytes(self._stream.getvalue().to_pybytes())

    def _write(self) -> None:
        events, self._waiting, self._waiting_bytes = self._waiting, [], 0
        columns = record_batch(
            events,
            scope=self._scope,
            segment=self._number,
            ordinal=self._ordinal + self._rows,
            documents=self._documents,
        )
        self._writer.write_batch(columns)
        self._rows += len(events)
