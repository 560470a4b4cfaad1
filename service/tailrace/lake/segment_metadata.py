"""The metadata at the end of a segment's file: schema, footer and checksum.

The footer ends with a ``checksum``: the CRC32 of the file's whole metadata, computed with zeros in
place of the checksum.
"""

import re
from collections.abc import Callable
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import SegmentUnreadable
from tailrace.lake.segment import COLUMNS, FOOTER_KEY, NO_CHECKSUM, Documents, Footer, LogicalType

_MAGIC = b"PAR1"
_TRAILER_BYTES = 8
"""What follows the metadata: its length, and the magic number
(https://parquet.apache.org/docs/file-format/)."""
_END_BYTES = 65_536
"""What is read from the end of a file first: the metadata of all but the largest segments."""
_MOST_BYTES = 64 * 1024 * 1024
"""The largest metadata that is read. A segment has 2 KiB of metadata per row group."""
_REQUIRED = {"scope", "segment", "ordinal", "token", "operation"}


def schema(documents: Documents) -> pa.Schema:
    """The schema of a segment that stores documents in this form."""
    kinds = {
        LogicalType.INT64: pa.int64(),
        LogicalType.STRING: pa.string(),
        LogicalType.BINARY: pa.binary(),
        LogicalType.MILLISECONDS: pa.timestamp("ms", "UTC"),
        LogicalType.DOCUMENT: pa.binary() if documents is Documents.BSON else pa.string(),
    }
    return pa.schema(
        pa.field(name, kinds[kind], nullable=name not in _REQUIRED)
        for name, kind in COLUMNS.items()
    )


def with_checksum(end: bytes) -> bytes:
    """The end of a file, with the checksum filled in."""
    begin = len(end) - _needed(end)
    metadata = end[begin:-_TRAILER_BYTES]
    first, last = _checksums(metadata)[-1].span(1)
    return b"%b%08x%b" % (end[: begin + first], crc32(metadata), end[begin + last :])


def read_footer(
    read_end: Callable[[int], bytes], *, where: str, lake: str, scope: str, number: int
) -> Footer:
    """The footer of a segment, after checks that the file is intact and belongs here.

    ``read_end`` returns at most the given number of bytes from the file's end. Raises
    :class:`SegmentUnreadable`, whose message calls the file ``where``.
    """
    try:
        metadata, text = _verified(read_end)
    except ValueError as error:
        raise SegmentUnreadable(
            f"{where}: is damaged, or not a Parquet file: {error}. Nothing was changed. Restore it "
            "from a backup. If there is none, stop the daemon, move the file out of the lake and "
            "restart: what it held comes again while the server's history reaches back so far"
        ) from error
    if text is None:
        raise SegmentUnreadable(
            f"{where}: is not a segment: its metadata has no {FOOTER_KEY.decode()!r}. Nothing was "
            "changed. Move it out of the lake"
        )
    footer = Footer.from_json(text, where=where)
    fault = None
    if footer.lake != lake:
        fault = f"belongs to the lake {footer.lake}, not to {lake}"
    elif (footer.scope, footer.segment) != (scope, number):
        fault = f"is segment {footer.segment} of scope {footer.scope!r}"
    elif footer.rows != metadata.num_rows:
        fault = f"holds {metadata.num_rows} rows, and its footer says {footer.rows}"
    else:
        fault = _other_columns(metadata.schema.to_arrow_schema(), schema(footer.documents))
    if fault:
        raise SegmentUnreadable(
            f"{where}: {fault}. Nothing was changed. Restore the file that belongs there"
        )
    return footer


def _other_columns(found: pa.Schema, wanted: pa.Schema) -> str | None:
    for field in wanted:
        at = found.get_field_index(field.name)
        if at < 0:
            return f"has no column {field.name!r}"
        if found.field(at).type != field.type:
            return f"has a column {field.name!r} of type {found.field(at).type}"
    return None


def _verified(read_end: Callable[[int], bytes]) -> tuple[pq.FileMetaData, bytes | None]:
    """The metadata, and the text of the footer if it has one. Raises ``ValueError``."""
    end = read_end(_END_BYTES)
    needed = _needed(end)
    if len(end) == _END_BYTES < needed:
        end = read_end(needed)
    if len(end) < needed:
        raise ValueError(f"its metadata has {needed} bytes, and the file {len(end)}")
    try:
        metadata = pq.read_metadata(pa.BufferReader(end))
        footer: bytes | None = (metadata.metadata or {}).get(FOOTER_KEY)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    if footer is not None:
        _verify(end[-needed:-_TRAILER_BYTES])
    return metadata, footer


def _needed(end: bytes) -> int:
    """The size in bytes of metadata and trailer, from the end of a file."""
    if len(end) < _TRAILER_BYTES or not end.endswith(_MAGIC):
        raise ValueError("it does not end as a Parquet file does")
    size = int.from_bytes(end[-_TRAILER_BYTES : -len(_MAGIC)], "little")
    if size > _MOST_BYTES:
        raise ValueError(f"its metadata has {size} bytes, and at most {_MOST_BYTES} are read")
    return size + _TRAILER_BYTES


def _verify(metadata: bytes) -> None:
    checksums = _checksums(metadata)
    if not checksums:
        return  # written by other software
    begin, end = checksums[-1].span(1)
    whole = crc32(b"%b%b%b" % (metadata[:begin], NO_CHECKSUM.encode(), metadata[end:]))
    if checksums[-1][1] != b"%08x" % whole:
        raise ValueError("the checksum of its metadata does not match")


def _checksums(metadata: bytes) -> list[re.Match[bytes]]:
    """Every text that looks like a checksum. The last one is the footer's own."""
    return list(re.finditer(rb',"checksum":"(.{8})"}', metadata, re.DOTALL))
