"""Segments as Parquet files: their schema, how they are written, and what of them is verified.

Parquet is written and read with pyarrow. Each page has a CRC32 in its header, which readers compare
where they are told to (pyarrow: ``page_checksum_verification``; Spark:
``parquet.page.verify-checksum.enabled``). The file's metadata is protected by the ``checksum`` at
the end of the segment's footer: a CRC32 of the metadata in which the checksum itself is zeros.
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
"""Columns whose values come again and again: each value is kept once in a row group."""
_COMPARED = ["ordinal", "cluster_seconds", "operation", "database", "collection"]
"""Columns with the least and greatest value of each row group, so that readers can skip it."""

_ZSTD_LEVEL = 1

_MAGIC = b"PAR1"
_TRAILER_BYTES = 8
"""Behind the metadata: its length, and the magic number
(https://parquet.apache.org/docs/file-format/)."""
_END_BYTES = 65_536
"""What is read from a segment's end at first: the metadata of any but the largest."""
_MOST_BYTES = 64 * 1024 * 1024
"""Metadata that is read: of a segment it has 2 KiB for each row group."""


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
    """The bytes of one segment, from the first to the last: row groups, then the metadata.

    ``ordinal`` is that of its first row.
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
        """The next bytes of the file: these values of some events, text as UTF-8.

        The columns of the segment itself are added.
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
    """A file's metadata, verified where it is a segment's.

    ``read_end`` reads so many bytes from the file's end, or all where it has fewer. Raises
    ``ValueError`` for what is no Parquet file, or a damaged segment.
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
    """Bytes of the metadata and what follows it, in a file that ends so."""
    if len(end) < _TRAILER_BYTES or not end.endswith(_MAGIC):
        raise ValueError("it does not end as a Parquet file does")
    size = int.from_bytes(end[-_TRAILER_BYTES : -len(_MAGIC)], "little")
    if size > _MOST_BYTES:
        raise ValueError(f"its metadata has {size} bytes, and at most {_MOST_BYTES} are read")
    return size + _TRAILER_BYTES


def _verify(metadata: bytes, footer: bytes) -> None:
    """The footers of the first segments have no checksum, and later ones that of their own text."""
    checksums = _checksums(metadata)
    if not checksums:
        return
    begin, end = checksums[-1].span(1)
    found = int(metadata[begin:end], 16)
    whole = crc32(b"%b%b%b" % (metadata[:begin], NO_CHECKSUM.encode(), metadata[end:]))
    text = crc32(footer[: footer.rfind(b',"checksum":"')])
    if found not in (whole, text):
        raise ValueError("its metadata does not have the checksum that it names: it is damaged")


def _checksums(metadata: bytes) -> list[re.Match[bytes]]:
    """What looks like a footer's checksum; the last one is it, for nothing behind it is text."""
    return list(re.finditer(rb',"checksum":"([0-9a-f]{8})"}', metadata))
