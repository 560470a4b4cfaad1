"""The end of a Parquet file: written whole, and read for what it says of the file as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.lake.parquet.column import Column
from tailrace.lake.parquet.thrift import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    ThriftReader,
    Value,
    binary,
    i32,
    i64,
    listing,
    struct,
)

MAGIC = b"PAR1"
"""Begins and ends every file (https://parquet.apache.org/docs/file-format/)."""

CREATED_BY = b"tailrace version 1.1.0 (build lake)"
"""Who wrote the file, in the form that readers take apart to know writers with faults
(parquet-java's ``VersionParser``). The version is the writer's own: it goes up when the writer is
mended, and says nothing of Tailrace's."""

_VERSION = 1
"""The format's: 1 where data pages are of the first kind."""

_TRAILER = 8
"""Bytes behind the metadata: its length, and :data:`MAGIC`."""

_MOST_BYTES = 16 * 1024 * 1024
"""Metadata that is read: of a segment it has some KiB for each row group."""

_TYPE_DEFINED_ORDER = struct({1: struct({})})


@dataclass(frozen=True, slots=True)
class FileEnd:
    """What a file says of itself: its number of rows, and its own key-value metadata."""

    rows: int
    metadata: Mapping[bytes, bytes]


def written(
    columns: Sequence[Column], rows: int, groups: Sequence[Value], metadata: Mapping[bytes, bytes]
) -> bytes:
    """All that stands behind the last page: ``FileMetaData``, its length, and :data:`MAGIC`."""
    schema = [struct({4: binary(b"schema"), 5: i32(len(columns))})]
    schema += [column.element() for column in columns]
    pairs = [struct({1: binary(key), 2: binary(value)}) for key, value in metadata.items()]
    _, data = struct(
        {
            1: i32(_VERSION),
            2: listing(STRUCT, schema),
            3: i64(rows),
            4: listing(STRUCT, groups),
            5: listing(STRUCT, pairs),
            6: binary(CREATED_BY),
            7: listing(STRUCT, [_TYPE_DEFINED_ORDER] * len(columns)),
        }
    )
    return data + len(data).to_bytes(4, "little") + MAGIC


def needed(end: bytes) -> int:
    """How many bytes from a file's end :func:`read` wants; ``end`` has at least the last eight.

    Raises ``ValueError`` where that is not the end of a Parquet file, or one too large to read.
    """
    if len(end) < _TRAILER or not end.endswith(MAGIC):
        raise ValueError("it does not end as a Parquet file does")
    size = int.from_bytes(end[-8:-4], "little")
    if size > _MOST_BYTES:
        raise ValueError(f"metadata of {size} bytes, where at most {_MOST_BYTES} are read")
    return size + _TRAILER


def read(end: bytes) -> FileEnd:
    """Reads the last bytes of a file, at least as many as :func:`needed` says.

    Raises ``ValueError`` for what is no Parquet file's end. The row groups are passed over.
    """
    begin = len(end) - needed(end)
    if begin < 0:
        raise ValueError(f"metadata of {needed(end) - _TRAILER} bytes in a file of {len(end)}")
    reader = ThriftReader(end[begin:-_TRAILER])
    rows, metadata = None, {}
    found = set()
    for field, kind in reader.fields():
        found.add(field)
        if (field, kind) == (3, I64):
            rows = reader.integer()
        elif (field, kind) == (5, LIST):
            metadata = _pairs(reader)
        else:
            reader.skip(kind)
    if rows is None or not found >= {1, 2, 3, 4}:
        raise ValueError("metadata without a schema, row groups or their number of rows")
    return FileEnd(rows, metadata)


def _pairs(reader: ThriftReader) -> dict[bytes, bytes]:
    element, count = reader.listing()
    if count and element != STRUCT:
        raise ValueError(f"key-value metadata of the type {element}")
    pairs: dict[bytes, bytes] = {}
    for _ in range(count):
        texts = {}
        for field, kind in reader.fields():
            if kind == BINARY:
                texts[field] = reader.binary()
            else:
                reader.skip(kind)
        pairs[texts.get(1, b"")] = texts.get(2, b"")
    return pairs
