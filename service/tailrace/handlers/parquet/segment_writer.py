"""Writing one segment: from events to a Parquet file in the lake."""

from collections.abc import Iterable

from tailrace.event.columns import cut
from tailrace.lake.segment import Documents, Footer
from tailrace.lake.segment_file import SegmentFile
from tailrace.lake.storage import Draft

_ROW_GROUP_EVENTS = 8192
_ROW_GROUP_BYTES = 1024 * 1024
"""Events of a row group. They are in memory, as bytes, until it is written: this bounds the memory
of each scope."""


class SegmentWriter:
    """Writes one segment to ``draft``, a row group at a time.

    ``ordinal`` is that of its first event. Errors of the storage are ``OSError``.
    """

    def __init__(
        self, draft: Draft, scope: str, number: int, ordinal: int, documents: Documents
    ) -> None:
        self.last = b""
        self.size = 0
        """Bytes of the file so far."""
        self._draft = draft
        self._documents = documents
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file = SegmentFile(scope, number, ordinal, documents)

    def __len__(self) -> int:
        return self._file.rows + len(self._waiting)

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return self._draft.held + self._waiting_bytes

    def add(self, events: Iterable[bytes]) -> None:
        """Appends events. Raises ``ValueError`` where one is no BSON document or has no token."""
        for event in events:
            self.last = event
            self._waiting.append(event)
            self._waiting_bytes += len(event)
            if len(self._waiting) >= _ROW_GROUP_EVENTS or self._waiting_bytes >= _ROW_GROUP_BYTES:
                self._write_row_group()

    def finish(self, footer: Footer) -> None:
        """Completes the file and gives it its name.

        Raises as :meth:`add` and :meth:`Draft.finish` do.
        """
        if self._waiting:
            self._write_row_group()
        self._write(self._file.close(footer))
        self._draft.finish()

    def discard(self) -> None:
        """Removes what was written."""
        self._draft.discard()

    def _write_row_group(self) -> None:
        events, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._write(self._file.row_group(cut(events, self._documents)))

    def _write(self, data: bytes) -> None:
        self._draft.write(data)
        self.size += len(data)
