"""A Parquet file in memory: pages to column chunks, to row groups, to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.lake.parquet import footer
from tailrace.lake.parquet.chunk import Chunk
from tailrace.lake.parquet.column import Column, Values
from tailrace.lake.parquet.compression import Compression
from tailrace.lake.parquet.thrift import STRUCT, Value, i64, listing, struct

_ROW_GROUP_BYTES = 64 * 1024 * 1024


class ParquetWriter:
    """Writes one file: :meth:`write` for each page, and then :meth:`close`.

    Each page is compressed at once, so what is in memory is one page and the file so far, or, if
    :meth:`done` is asked, the last row group. A row group ends with the page with which it has
    ``row_group_bytes`` before compression. Writers may share a ``compression``.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        row_group_bytes: int = _ROW_GROUP_BYTES,
        compression: Compression | None = None,
    ) -> None:
        self._columns = columns
        self._names = {column.name for column in columns}
        self._row_group_bytes = row_group_bytes
        self._compress = (compression or Compression()).compress
        self._parts = [footer.MAGIC]
        self._size = len(footer.MAGIC)
        self._groups: list[Value] = []
        self._given = self._groups_given = 0
        self._rows = 0
        self._chunks = self._new_chunks()
        self._group_rows = 0

    @property
    def rows(self) -> int:
        """Rows so far."""
        return self._rows + self._group_rows

    @property
    def size(self) -> int:
        """Bytes so far, without dictionaries of the last row group and without the file's end."""
        return self._size + sum(chunk.compressed_bytes for chunk in self._chunks)

    @property
    def held(self) -> int:
        """Bytes of them that are in memory: none of what :meth:`done` gave away."""
        return self.size - self._given

    def write(self, values: dict[str, Values]) -> None:
        """Adds rows: one page of each column, all of the same number of values. Empties the dict.

        Raises ``ValueError`` where a column is missing or has another number of values, or 2 GiB
        of them; ``TypeError`` or ``struct.error`` for a value that is not of its column's kind
        (:meth:`close` does, where the column has a dictionary), also for a null where there must
        be none. The writer is of no use after that.
        """
        counts = set(map(len, values.values()))
        if len(counts) != 1 or values.keys() != self._names:
            raise ValueError("not every column has values, or not all have the same number")
        (count,) = counts
        if not count:
            return
        for column, chunk in zip(self._columns, self._chunks, strict=True):
            chunk.add(values.pop(column.name))
        self._group_rows += count
        if sum(chunk.raw_bytes for chunk in self._chunks) >= self._row_group_bytes:
            self._end_group()

    def done(self) -> Sequence[bytes]:
        """The pieces of the file, in order, that are complete since it was asked before.

        They are of whole row groups, for a group's columns follow one another.
        """
        if len(self._groups) == self._groups_given:
            return ()
        return self._give()

    def _give(self) -> Sequence[bytes]:
        parts, self._parts = self._parts, []
        self._given += sum(map(len, parts))
        self._groups_given = len(self._groups)
        return parts

    def close(self, metadata: Mapping[bytes, bytes]) -> Sequence[bytes]:
        """The rest of the file, with ``metadata`` as its own key-value metadata. Ends the writer.

        It comes in the pieces that it has in memory, so that it is not there twice.
        """
        if self._group_rows:
            self._end_group()
        end = footer.written(self._columns, self._rows, self._groups, metadata)
        self._parts.append(end)
        self._size += len(end)
        return self._give()

    def _end_group(self) -> None:
        begin, raw = self._size, 0
        chunks: list[Value] = []
        for chunk in self._chunks:
            pages, metadata = chunk.close(self._size)
            self._parts += pages
            self._size += chunk.compressed_bytes
            raw += chunk.raw_bytes
            chunks.append(metadata)
        # RowGroup in parquet.thrift. Readers that share a file out go by where a group begins.
        self._groups.append(
            struct(
                {
                    1: listing(STRUCT, chunks),
                    2: i64(raw),
                    3: i64(self._group_rows),
                    5: i64(begin),
                    6: i64(self._size - begin),
                }
            )
        )
        self._rows += self._group_rows
        self._chunks, self._group_rows = self._new_chunks(), 0

    def _new_chunks(self) -> list[Chunk]:
        return [Chunk(column, self._compress) for column in self._columns]
