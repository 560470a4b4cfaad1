"""Reads the segments of a scope as a log of changes, for a comparison with the source."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import bson

from tailrace.destination import Namespace, Row, SnapshotBarrier
from tailrace.destination.document_row import DocumentRow, JsonRow
from tailrace.destination.folded_log import LoggedChange
from tailrace.event import ChangeEvent
from tailrace.event.cluster_position import position
from tailrace.event.codec import CODEC
from tailrace.event.document_tree import to_bson, tree_of
from tailrace.event.namespace import namespace
from tailrace.lake.segment import Documents, Footer, segment_name
from tailrace.lake.segment_reader import segment_rows
from tailrace.lake.writable_lake import WritableLake
from tailrace.model import SinkPosition

_COLUMNS = (
    *("cluster_seconds", "cluster_increment", "operation", "database", "collection"),
    *("document_key", "full_document", "update_description", "extra"),
)
_OF_DOCUMENTS = frozenset({"insert", "update", "replace", "delete", "read"})


class LandedSegments:
    """Implements :class:`tailrace.destination.log_comparison.ChangeLog`: a segment at a time."""

    def __init__(self, lake: WritableLake, scope: str) -> None:
        """Raises ``OSError``, and :class:`SegmentUnreadable` if the lake is not as it should be."""
        self._lake = lake
        self._scope = scope
        self._last: Footer | None = None
        lake.require_identity()
        numbers = lake.segments(scope)
        self._next = self._first = numbers[0] if numbers else 0
        self._end = self._next + len(numbers)

    @property
    def removed(self) -> str:
        if not self._first:
            return ""
        first = self._lake.where(self._scope, self._first)
        return f"the segments before {first} were removed"

    @property
    def position(self) -> SinkPosition | None:
        last = self._last
        if last is None or (last.token is None and last.snapshot is None):
            return None
        return SinkPosition(last.token, last.cluster_time, last.fingerprint, last.snapshot)

    def more(self) -> Iterator[LoggedChange] | None:
        number, name = self._next, f"{self._scope}/{segment_name(self._next)}"
        try:
            data = self._lake.storage.read(name)
        except FileNotFoundError:
            if number < self._end:
                raise
            return None
        footer = self._lake.footer(self._scope, number)
        self._last, self._next = footer, number + 1
        return self._changes(data, footer)

    def close(self) -> None:
        """Nothing is open between two segments."""

    def _changes(self, data: bytes, footer: Footer) -> Iterator[LoggedChange]:
        where = self._lake.where(self._scope, footer.segment)
        for row in segment_rows(data, _COLUMNS, where):
            yield _change(row, _READERS[footer.documents])


def row_maker(documents: Documents) -> Callable[[ChangeEvent], Row]:
    """Makes the row of a document, in the form in which it is landed."""

    def made(event: ChangeEvent) -> Row:
        row = DocumentRow(event.field_bytes("fullDocument") or b"")
        return row if documents is Documents.BSON else JsonRow(row.text)

    return made


def _change(row: tuple[Any, ...], reads: Callable[[Any], bytes]) -> LoggedChange:
    seconds, increment, operation, database, collection, key, document, description, extra = row
    time = None if seconds is None else position(seconds, increment or 0)
    where = None if database is None else Namespace(database, collection)
    if operation in _OF_DOCUMENTS:
        raw = None if key is None else reads(key)
        return LoggedChange(operation, where, time, raw, document, description)
    others: dict[str, Any] = {} if extra is None else bson.decode(reads(extra), CODEC)
    snapshot = None
    if "snapshot" in others:
        snapshot = SnapshotBarrier.of(ChangeEvent.from_document(others))
    to = namespace(others["to"]) if isinstance(others.get("to"), Mapping) else None
    return LoggedChange(operation, where, time, to=to, snapshot=snapshot)


def _of_text(text: str) -> bytes:
    return to_bson(tree_of(text))


_READERS: Mapping[Documents, Callable[[Any], bytes]] = {
    Documents.BSON: lambda raw: raw,
    Documents.CANONICAL: _of_text,
}
