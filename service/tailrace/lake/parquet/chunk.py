"""A column chunk: one column's pages in one row group, compressed as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.lake.parquet.column import Column, Values
from tailrace.lake.parquet.pages import (
    definition_levels,
    indices,
    plain_numbers,
    plain_texts,
    repeated_index,
)
from tailrace.lake.parquet.thrift import (
    BINARY,
    I32,
    STRUCT,
    Value,
    binary,
    i32,
    i64,
    listing,
    struct,
)

# Encoding, CompressionCodec and PageType in parquet.thrift.
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_ZSTD = 6
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2

_DICTIONARY_ENTRIES = 65_536
_DICTIONARY_BYTES = 1024 * 1024
"""A dictionary that has outgrown one of these gets no more: later pages have their values."""

_LARGEST_PAGE = 2**31 - 1
"""A page's size has 32 bits."""

_LONGEST_BOUND = 256
"""Bytes of a least or greatest value; a chunk with a longer one goes without both."""


class Chunk:
    """One column of the row group that is being written."""

    def __init__(self, column: Column, compress: Callable[[bytes], bytes]) -> None:
        self._column = column
        self._compress = compress
        self._plain: Callable[[bytes, Any], bytes] = (
            plain_numbers if column.kind.numeric else plain_texts
        )
        self._dictionary = _Dictionary() if column.dictionary else None
        self._pages: list[bytes] = []
        self._encodings = {_PLAIN: 0, _RLE_DICTIONARY: 0}
        self._values = 0
        self._nulls = 0
        self._least: Any = None
        self._greatest: Any = None
        self._bounded = True
        self.raw_bytes = 0
        """Bytes of its pages before compression, with their headers."""
        self.compressed_bytes = 0
        """Bytes of its pages as they stand in the file."""

    def add(self, values: Values) -> None:
        """One page of at least one row. Raises as :meth:`ParquetWriter.write` says."""
        present: Any = values
        head = b""
        if not self._column.required:
            head, present = definition_levels(values)
            self._nulls += len(values) - len(present)
        count = len(values)
        self._values += count
        encoding, body = self._encoded(head, present)
        del values, present  # they are all in the body, and it is about to be there once more
        self._encodings[encoding] += 1
        header = struct({1: i32(count), 2: i32(encoding), 3: i32(_RLE), 4: i32(_RLE)})
        self._pages.append(self._page(_DATA_PAGE, 5, header, body))

    def _encoded(self, head: bytes, present: Any) -> tuple[int, bytes]:
        """The encoding of the values behind ``head``, and both together."""
        dictionary = self._dictionary
        # Not every reader knows what a page without values wants of a dictionary.
        if dictionary is None or not present or dictionary.full:
            if self._column.statistics and present:
                self._bound(min(present), max(present))
            return _PLAIN, self._plain(head, present)
        distinct = set(present)
        if self._column.statistics:
            self._bound(min(distinct), max(distinct))
        if len(distinct) == 1:
            return _RLE_DICTIONARY, repeated_index(head, dictionary[present[0]], len(present))
        places = list(map(dictionary.__getitem__, present))
        return _RLE_DICTIONARY, indices(head, places, len(dictionary))

    def _bound(self, least: Any, greatest: Any) -> None:
        if not self._column.kind.numeric and max(len(least), len(greatest)) > _LONGEST_BOUND:
            self._bounded = False
        if not self._bounded:
            self._least = self._greatest = None
        elif self._least is None:
            self._least, self._greatest = least, greatest
        else:
            self._least = min(self._least, least)
            self._greatest = max(self._greatest, greatest)

    def _page(self, kind: int, field: int, header: Value, body: bytes) -> bytes:
        """Its ``PageHeader``, and the body compressed."""
        if len(body) > _LARGEST_PAGE:
            raise ValueError(f"a page of {len(body)} bytes of column {self._column.name!r}")
        data = self._compress(body)
        head = struct({1: i32(kind), 2: i32(len(body)), 3: i32(len(data)), field: header})[1]
        self.raw_bytes += len(head) + len(body)
        self.compressed_bytes += len(head) + len(data)
        return head + data

    def close(self, offset: int) -> tuple[list[bytes], Value]:
        """Its pages, which stand at ``offset`` of the file, and its ``ColumnChunk``."""
        if self._dictionary:
            self._pages.insert(0, self._dictionary_page(self._dictionary))
        return self._pages, struct({2: i64(0), 3: self._metadata(offset)})

    def _dictionary_page(self, dictionary: _Dictionary) -> bytes:
        header = struct({1: i32(len(dictionary)), 2: i32(_PLAIN)})
        return self._page(_DICTIONARY_PAGE, 7, header, self._plain(b"", list(dictionary)))

    def _metadata(self, offset: int) -> Value:
        """``ColumnMetaData`` in parquet.thrift, of the chunk at this place."""
        pages = [(_DICTIONARY_PAGE, _PLAIN, 1)] if self._dictionary else []
        pages += [(_DATA_PAGE, encoding, n) for encoding, n in self._encodings.items() if n]
        encodings = sorted({_RLE, *(encoding for _, encoding, _ in pages)})
        return struct(
            {
                1: self._column.kind.physical,
                2: listing(I32, [i32(encoding) for encoding in encodings]),
                3: listing(BINARY, [binary(self._column.name.encode())]),
                4: i32(_ZSTD),
                5: i64(self._values),
                6: i64(self.raw_bytes),
                7: i64(self.compressed_bytes),
                9: i64(offset + len(self._pages[0]) if self._dictionary else offset),
                11: i64(offset) if self._dictionary else None,
                12: self._statistics() if self._column.statistics else None,
                13: listing(STRUCT, [struct(dict(enumerate(map(i32, of), 1))) for of in pages]),
            }
        )

    def _statistics(self) -> Value:
        """``Statistics`` in parquet.thrift: the bounds are PLAIN, and texts without a length."""
        least, greatest = self._least, self._greatest
        if least is not None and self._column.kind.numeric:
            least, greatest = (n.to_bytes(8, "little", signed=True) for n in (least, greatest))
        return struct(
            {
                3: i64(self._nulls),
                5: None if greatest is None else binary(greatest),
                6: None if least is None else binary(least),
            }
        )


class _Dictionary(dict[Any, int]):
    """Values to their places: one that is looked up and not there gets the next."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def __missing__(self, value: Any) -> int:
        self._bytes += 8 if isinstance(value, int) else len(value)
        place = self[value] = len(self)
        return place

    @property
    def full(self) -> bool:
        return len(self) >= _DICTIONARY_ENTRIES or self._bytes >= _DICTIONARY_BYTES
