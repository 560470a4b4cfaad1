"""A segment on its way: events in, one Parquet file out."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.handlers.parquet.columns import cut
from tailrace.lake.parquet.column import Column, ColumnKind, Values
from tailrace.lake.parquet.compression import Compression
from tailrace.lake.parquet.writer import ParquetWriter
from tailrace.lake.segment import COLUMNS, FOOTER_KEY, Documents, Footer, Kind
from tailrace.lake.storage import Draft

_PAGE_EVENTS = 1024
_PAGE_BYTES = 192 * 1024
"""What is cut into columns at once, and makes a page of each. Until then it waits, as bytes."""

_ROW_GROUP_BYTES = 4 * 1024 * 1024
"""Bytes of pages, before compression, with which a row group goes to the storage's draft."""

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
    """The file of one segment: written to ``draft``, but for a row group and a page of events.

    ``ordinal`` is that of its first event. Errors of the storage are ``OSError``.
    """

    def __init__(
        self,
        draft: Draft,
        scope: str,
        number: int,
        ordinal: int,
        documents: Documents,
        compression: Compression,
    ) -> None:
        self.last = b""
        self._draft = draft
        self._scope = scope.encode()
        self._number = number
        self._ordinal = ordinal
        self._documents = documents
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file = ParquetWriter(
            columns(documents), row_group_bytes=_ROW_GROUP_BYTES, compression=compression
        )

    def __len__(self) -> int:
        return self._file.rows + len(self._waiting)

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return self._draft.held + self._file.held + self._waiting_bytes

    @property
    def size(self) -> int:
        """Bytes of the file so far."""
        return self._file.size

    def add(self, events: Iterable[bytes]) -> None:
        """Appends events. Raises ``ValueError`` where one is no BSON document or has no token."""
        for event in events:
            self.last = event
            self._waiting.append(event)
            self._waiting_bytes += len(event)
            if len(self._waiting) >= _PAGE_EVENTS or self._waiting_bytes >= _PAGE_BYTES:
                self._write()

    def finish(self, footer: Footer) -> None:
        """Gives the file its name. Raises as :meth:`add` and :meth:`Draft.finish` do."""
        if self._waiting:
            self._write()
        self._draft.write(self._file.close({FOOTER_KEY: footer.to_json()}))
        self._draft.finish()

    def discard(self) -> None:
        """Gives it up."""
        self._draft.discard()

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
        if done := self._file.done():
            self._draft.write(done)
