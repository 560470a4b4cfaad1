"""A segment on its way: events in, one Parquet file out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from service.handlers.parquet.columns import cut
from service.lake.parquet.column import Column, ColumnKind, Values
from service.lake.parquet.compression import Compression
from service.lake.parquet.writer import ParquetWriter
from service.lake.segment import COLUMNS, FOOTER_KEY, Documents, Footer, Kind

_PAGE_EVENTS = 1024
_PAGE_BYTES = 256 * 1024
"""What is cut into columns at once, and makes a page of each. Until then it waits, as bytes."""

_REQUIRED = {"scope", "segment", "ordinal", "token", "operation"}
_REPEATED = {"scope", "segment", "cluster_seconds", "operation", "database", "collection"}
_COMPARED = {"ordinal", "cluster_seconds", "operation", "database", "collection"}


def columns(documents: Documents) -> list[Column]:
    """A segment's columns as Parquet's."""
    kinds = {
        Kind.INT64: ColumnKind.INT64,
        Kind.STRING: ColumnKind.STRING,
        Kind.BINARY: ColumnKind.BINARY,
        Kind.MILLISECONDS: ColumnKind.MILLISECONDS,
        Kind.DOCUMENT: ColumnKind.BINARY if documents is Documents.BSON else ColumnKind.STRING,
    }
    return [
        Column(
            name,
            kinds[kind],
            required=name in _REQUIRED,
            dictionary=name in _REPEATED,
            statistics=name in _COMPARED,
        )
        for name, kind in COLUMNS.items()
    ]


class Segment:
    """The file of one segment, in memory: encoded, but for less than a page of its events.

    ``ordinal`` is that of its first event.
    """

    def __init__(
        self,
        scope: str,
        number: int,
        ordinal: int,
        documents: Documents,
        compression: Compression,
    ) -> None:
        self.last = b""
        self._scope = scope.encode()
        self._number = number
        self._ordinal = ordinal
        self._documents = documents
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file = ParquetWriter(columns(documents), compression=compression)

    def __len__(self) -> int:
        return self._file.rows + len(self._waiting)

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self._file.size + self._waiting_bytes

    def add(self, events: Iterable[bytes]) -> None:
        """Appends events. Raises ``ValueError`` where one is no BSON document or has no token."""
        for event in events:
            self.last = event
            self._waiting.append(event)
            self._waiting_bytes += len(event)
            if len(self._waiting) >= _PAGE_EVENTS or self._waiting_bytes >= _PAGE_BYTES:
                self._write()

    def close(self, footer: Footer) -> Sequence[bytes]:
        """The whole file, in pieces. Raises as :meth:`add` does."""
        if self._waiting:
            self._write()
        return self._file.close({FOOTER_KEY: footer.to_json()})

    def _write(self) -> None:
        count, ordinal = len(self._waiting), self._ordinal + self._file.rows
        values: dict[str, Values] = {
            "scope": [self._scope] * count,
            "segment": [self._number] * count,
            "ordinal": range(ordinal, ordinal + count),
        }
        values |= cut(self._waiting, self._documents)
        self._waiting, self._waiting_bytes = [], 0
        self._file.write(values)
