"""Segments as Parquet files: their schema, how they are written, and how damage is found.

Each page has a CRC32 in its header, which readers compare if they are told to (pyarrow:
``page_checksum_verification``; Spark: ``parquet.page.verify-checksum.enabled``). The
file's metadata is protected by the ``checksum`` at the end of the segment's footer: a CRC32 of the
metadata in which the checksum itself is zeros.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.lake.segment import COLUMNS, FOOTER_KEY, NO_CHECKSUM, Documents, Footer, Kind

_REQUIRED = {"scope", "segment", "ordinal", "token", "operation"}
_REPEATED = ["scope", "segment", "cluster_seconds", "operation", "database", "collection"]
"""Columns of few distinct values: a row group has a dictionary of them."""
_COMPARED = ["ordinal", "cluster_seconds", "operation", "database", "collection"]
"""Columns with statistics: readers skip a row group by its least and greatest value."""

_ZSTD_LEVEL = 1

_MAGIC = b"PAR1"
_TRAILER_BYTES = 8
"""After the metadata: its length, and the magic number
(https://parquet.apache.org/docs/file-format/)."""
_END_BYTES = 65_536
"""Read from the end of a file at first: the metadata of all but the largest segments."""
_MOST_BYTES = 64 * 1024 * 1024
"""The largest metadata that is read. That of a segment has 2 KiB for each row group."""


def schema(documents: Documents) -> pa.Schema:
    """A segment's columns as Arrow types."""
    kinds = {
        Kind.INT64: pa.int64(),
        Kind.STRING: pa.string(),
        Kind.BINARY: pa.binary(),
        Kind.MILLISECONDS: pa.timestamp("ms", "UTC"),
        Kind.DOCUMENT: pa.binary() if documents is Documents.BSON else pa.string(),
    }
    return pa.schema(
        pa.field(name, kinds[kind], nullable=name not in _REQUIRED)
        for name, kind in COLUMNS.items()
    )


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
        end = self._written()
        begin = len(end) - _needed(end)
        metadata = end[begin:-_TRAILER_BYTES]
        checksum = _checksums(metadata)[-1]
        return b"%b%b%08x%b" % (
            end[:begin],
            metadata[: checksum.start(1)],
            crc32(metadata),
            end[begin + checksum.end(1) :],
        )

    def _written(self) -> bytes:
        written = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return written


def read_metadata(read_end: Callable[[int], bytes]) -> pq.FileMetaData:
    """The metadata of a Parquet file, whose checksum is verified if it is a segment.

    ``read_end`` returns at most so many bytes from the end of the file. Raises ``ValueError`` for a
    file that is damaged or not Parquet.
    """
    end = read_end(_END_BYTES)
    needed = _needed(end)
    if len(end) == _END_BYTES < needed:
        end = read_end(needed)
    if len(end) < needed:
        raise ValueError(f"its metadata has {needed} bytes, and the file {len(end)}")
    try:
        metadata = pq.read_metadata(pa.BufferReader(end))
        footer = (metadata.metadata or {}).get(FOOTER_KEY, b"")
    except (pa.ArrowException, OSError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    _verify(end[-needed:-_TRAILER_BYTES], footer)
    return metadata


def _needed(end: bytes) -> int:
    """How many bytes the metadata and the trailer have, in a file with this end."""
    if len(end) < _TRAILER_BYTES or not end.endswith(_MAGIC):
        raise ValueError("it does not end as a Parquet file does")
    size = int.from_bytes(end[-_TRAILER_BYTES : -len(_MAGIC)], "little")
    if size > _MOST_BYTES:
        raise ValueError(f"its metadata has {size} bytes, and at most {_MOST_BYTES} are read")
    return size + _TRAILER_BYTES


def _verify(metadata: bytes, footer: bytes) -> None:
    """Segments of earlier versions have no checksum, or that of the footer's text alone."""
    checksums = _checksums(metadata)
    if not checksums:
        return
    begin, end = checksums[-1].span(1)
    whole = crc32(b"%b%b%b" % (metadata[:begin], NO_CHECKSUM.encode(), metadata[end:]))
    text = crc32(footer[: footer.rfind(b',"checksum":"')])
    if checksums[-1][1] not in (b"%08x" % whole, b"%08x" % text):
        raise ValueError("the checksum of its metadata does not match")


def _checksums(metadata: bytes) -> list[re.Match[bytes]]:
    """Text like that of a checksum; the last one is the footer's, which no other text follows."""
    return list(re.finditer(rb',"checksum":"(.{8})"}', metadata, re.DOTALL))
