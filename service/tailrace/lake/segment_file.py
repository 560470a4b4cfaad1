"""Writing a segment as a Parquet file.

Each page has a CRC32 in its header, which readers compare if they are told to (pyarrow:
``page_checksum_verification``; Spark: ``parquet.page.verify-checksum.enabled``).
:mod:`tailrace.lake.segment_metadata` protects the rest.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.lake.segment import FOOTER_KEY, Documents, Footer
from tailrace.lake.segment_metadata import schema, with_checksum

_REPEATED = ["scope", "segment", "cluster_seconds", "operation", "database", "collection"]
"""Columns of few distinct values: a row group has a dictionary of them."""
_COMPARED = ["ordinal", "cluster_seconds", "operation", "database", "collection"]
"""Columns with statistics: readers skip a row group by its least and greatest value."""

_ZSTD_LEVEL = 1


class SegmentFile:
    """The bytes of one segment, in their order: row groups, then the metadata.

    ``ordinal`` is that of the first row.
    """

    def __init__(self, scope: str, number: int, ordinal: int, documents: Documents) -> None:
        self.rows = 0
        self._scope = scope
        self._number = number
        self._ordinal = ordinal
        self._buffer = io.BytesIO()
        self._schema = schema(documents)
        self._writer = pq.ParquetWriter(
            self._buffer,
            self._schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=_REPEATED,
            write_statistics=_COMPARED,
            store_schema=False,
            write_page_checksum=True,
        )

    def row_group(self, columns: Mapping[str, Sequence[Any]]) -> bytes:
        """The next bytes of the file: the columns of some events, text as UTF-8.

        Adds the columns that are not made of events.
        """
        count, first = len(columns["token"]), self._ordinal + self.rows
        values = {
            "scope": pa.repeat(self._scope, count),
            "segment": pa.repeat(self._number, count),
            "ordinal": range(first, first + count),
            **columns,
        }
        arrays = [pa.array(values[field.name], field.type) for field in self._schema]
        batch = pa.record_batch(arrays, schema=self._schema)
        self._writer.write_batch(batch, row_group_size=count)
        self.rows += count
        return self._written()

    def close(self, footer: Footer) -> bytes:
        """The last bytes of the file."""
        self._writer.add_key_value_metadata({FOOTER_KEY: footer.to_json()})
        self._writer.close()
        return with_checksum(self._written())

    def _written(self) -> bytes:
        written = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return written
