"""The rows that a batch makes of its tables: the last change of each document."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tailrace.destination import FieldMapping
from tailrace.destinations.postgresql.automatic_columns import AutomaticColumns, Fields
from tailrace.destinations.postgresql.nul import HELD, without_nul
from tailrace.destinations.postgresql.values import NulRefused, Values
from tailrace.event import ChangeEvent, Image, Namespace
from tailrace.event.bson import encoded
from tailrace.event.cluster_position import position
from tailrace.event.document_identity import key_after_text, shard_key_of_text
from tailrace.event.document_key import identity, key_text
from tailrace.event.json_lines import RELAXED, json_texts
from tailrace.event.last_change import LastChange, last_changes
from tailrace.event.layout import INCREMENT, NAMESPACE, OPERATION, SECONDS
from tailrace.event.snapshot_events import document_id

_LONGEST_ID = 64
HASHED = b"\xfe"
"""Before a hash. No type of BSON has this byte."""
HASHED_BYTES = 33


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows of one table, by column. ``gone`` and ``gone_at``: deleted documents, and when.

    ``gone_if``: of sharded documents among them, by id, what tells whether a row is theirs.
    ``values``: of the declared columns, then of the ``automatic`` ones. ``news``: fields that may
    become automatic columns.
    """

    automatic: AutomaticColumns
    ids: list[bytes] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    documents: list[bytes] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    values: list[list[Any]] = field(default_factory=list)
    gone: list[bytes] = field(default_factory=list)
    gone_at: list[int] = field(default_factory=list)
    gone_if: dict[bytes, LastChange] = field(default_factory=dict)
    misfits: list[str] = field(default_factory=list)
    news: Fields = field(default_factory=dict)

    @property
    def sent(self) -> list[list[Any]]:
        """What the statements of a table get of the rows that are stored."""
        return [self.ids, self.keys, self.documents, self.versions, *self.values]

    def spare_rows_of_others(self, stored: Iterable[Sequence[Any]]) -> None:
        """Takes rows (id, key and version) from ``gone`` whose document is not the deleted one."""
        for id_, key, version in stored:
            if id_ in self.gone:
                at, last = self.gone.index(id_), shard_key_of_text(key)
                same_time = version == self.gone_at[at]
                if not self.gone_if[id_].concerns(last, same_time=same_time):
                    del self.gone[at], self.gone_at[at]


@dataclass(frozen=True, slots=True)
class RowMaker:
    """What the settings say about rows."""

    values: Values
    fields: FieldMapping | None
    replace_nul: bool
    refuse_misfits: bool

    def rows(
        self,
        events: Mapping[int, ChangeEvent],
        refused: dict[int, str],
        automatic: Callable[[Namespace], AutomaticColumns],
    ) -> Mapping[Namespace, RowColumns]:
        """The rows of each collection: the last change of each document.

        Puts the reasons for events that cannot be rows into ``refused``, by their numbers.
        """
        tables: dict[Namespace, RowColumns] = {}
        changed = _last_changes(events, refused)
        documents = [raw for *_, raw in changed if raw is not None]
        if self.fields is not None:
            documents = [self.fields.of_document(raw) for raw in documents]
        made = zip(documents, json_texts(documents, RELAXED), strict=True)
        for number, change, event, key, document in changed:
            mapped, text = (None, None) if document is None else next(made)
            parts = event.parts
            seconds, namespace = parts[SECONDS], event.ns
            if seconds is None or namespace is None or namespace.coll is None:
                refused[number] = "it has no cluster time or collection: a pipeline removed it"
                continue
            rows = tables.get(namespace)
            if rows is None:
                rows = tables[namespace] = self._no_rows(automatic(namespace))
            version = position(seconds, parts[INCREMENT])
            if document is None or mapped is None or text is None:
                rows.gone.append(row_id(key, len(parts[NAMESPACE])))
                rows.gone_at.append(version)
                if change.shard_keys:
                    rows.gone_if[rows.gone[-1]] = change
                continue
            stored = without_nul(text, replace=self.replace_nul)
            if stored is None:
                refused[number] = _refusal(event, f"its document {HELD}")
            elif rows.values and (reason := self._take_values(document, mapped, rows)):
                refused[number] = _refusal(event, reason)
            else:
                rows.ids.append(row_id(key, len(parts[NAMESPACE])))
                rows.keys.append(key_after_text(event))
                rows.documents.append(stored)
                rows.versions.append(version)
                rows.automatic.note(mapped, rows.news)
        return tables

    def rows_of(self, documents: Sequence[bytes], automatic: AutomaticColumns) -> RowColumns:
        """What :meth:`rows` makes of documents that are read, without versions and refused ones."""
        rows, stored_documents = self._no_rows(automatic), documents
        if self.fields is not None:
            stored_documents = [self.fields.of_document(raw) for raw in documents]
        texts = json_texts(stored_documents, RELAXED)
        for raw, mapped, text in zip(documents, stored_documents, texts, strict=True):
            stored = without_nul(text, replace=self.replace_nul)
            if stored is None or (rows.values and self._take_values(raw, mapped, rows)):
                continue
            rows.ids.append(row_id(identity(raw, 0)))
            rows.keys.append(key_text(encoded(document_id(raw, 0))))
            rows.documents.append(stored)
        return rows

    def _no_rows(self, automatic: AutomaticColumns) -> RowColumns:
        columns = (*self.values.columns, *automatic.values.columns)
        return RowColumns(automatic, values=[[] for _ in columns])

    def _take_values(self, document: bytes, mapped: bytes, rows: RowColumns) -> str:
        """Adds the values of the columns to the rows; returns why not if they are refused.

        Automatic columns hold no more than the ``mapped`` document, and refuse nothing.
        """
        try:
            values, misfits = self.values.read(document)
            if misfits and self.refuse_misfits:
                return "; ".join(misfits)
            if rows.automatic.values.columns:
                more, others = rows.automatic.values.read(mapped)
                values += more
                misfits += others
        except NulRefused as error:
            return str(error)
        rows.misfits.extend(misfits)
        for column, value in zip(rows.values, values, strict=True):
            column.append(value)
        return ""


def _last_changes(
    events: Mapping[int, ChangeEvent], refused: dict[int, str]
) -> list[tuple[int, LastChange, ChangeEvent, bytes, bytes | None]]:
    """Of each document the number of its last change, the event, its key, and its document if it
    exists.

    In the order of the stream: a unique value may have gone from one document to another.
    """
    numbers = list(events)
    changes: list[tuple[int, LastChange, ChangeEvent, bytes, bytes | None]] = []
    for change in last_changes(list(events.values())):
        number = numbers[change.index]
        event = events[number]
        document, key = event.field_bytes("fullDocument"), event.key
        if key is None:
            refused[number] = "it has no document key: a pipeline removed documentKey"
        elif event.parts[OPERATION] == b"delete":
            changes.append((number, change, event, key, None))
        elif document is not None:
            changes.append((number, change, event, key, document))
        elif event.operation_type != "update" or event.full_document_image is not Image.NULL:
            refused[number] = _refusal(event, "it has no document")
        # Otherwise it was updated, and deleted since: its delete follows.
    return changes


def row_id(key: bytes, at: int = 0) -> bytes:
    """The key of a row: type and value of ``_id``, the same for values that MongoDB holds equal.

    A hash of it, if it is too long for an index. ``at``: where the element is in the event's key.
    """
    found = key[at : at + 1] + key[at + 5 :]  # without the name _id and its NUL
    return found if len(found) <= _LONGEST_ID else HASHED + sha256(found).digest()


def _refusal(event: ChangeEvent, reason: str) -> str:
    """The reason, with the collection and the document."""
    return f"{reason} ({event.ns}, {event.key_text or ''!s:.120})"
