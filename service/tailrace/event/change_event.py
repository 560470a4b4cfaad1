"""One change event, as the server sent it: its bytes, and its fields decoded on demand."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import datetime
from typing import Any, TypeVar, cast

import bson
from bson import Binary, Code
from bson.binary import UUID_SUBTYPE
from bson.timestamp import Timestamp

from tailrace.event import layout
from tailrace.event.bson import DOCUMENT, INT32, NULL, document_at, elements
from tailrace.event.codec import CODEC, decoded_field, decoded_key
from tailrace.event.document_key import Keys, document_key, id_alone, key_text
from tailrace.event.image import Image
from tailrace.event.layout import DOCUMENT_KEY, FULL_DOCUMENT, NAMESPACE, parts
from tailrace.event.memo import Memo
from tailrace.event.namespace import Namespace, namespace
from tailrace.model.token import ResumeToken

T = TypeVar("T")


class ChangeEvent:
    """A change event of MongoDB; unknown types and fields pass through unchanged.

    ``raw`` is the event's BSON, ``document`` the whole event decoded. The other attributes read
    single fields. They are ``None`` if the event lacks the field or has it with another type: a
    pipeline may reshape events. No other handler sees what a handler changes in it.

    A document of a snapshot is an event of the type ``read``: it has ``full_document``, ``ns``,
    ``document_key``, ``cluster_time``, and an ``id`` that is not a resume token.
    """

    __slots__ = ("_buffer", "_keys", "_parts", "_shared", "_start", "_values")

    def __init__(
        self,
        buffer: bytes,
        start: int = 0,
        shared: dict[Any, Any] | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._buffer = buffer
        self._start = start
        self._shared = shared
        self._keys = keys
        self._parts: layout.Parts | None = None
        self._values: dict[int | bytes, Any] | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ChangeEvent:
        """An event for tests of handlers: ``document`` as the server would send it."""
        return cls.from_raw(bson.encode(document))

    @classmethod
    def from_raw(cls, raw: bytes) -> ChangeEvent:
        """An event from its BSON document."""
        return cls(raw)

    @property
    def raw(self) -> bytes:
        """The event's BSON document, exactly as the server sent it."""
        start = self._start
        return self._buffer[start : start + INT32(self._buffer, start)[0]]

    @property
    def document(self) -> dict[str, Any]:
        """Every field, decoded."""
        values = self._values = self._values or {}
        if _WHOLE not in values:
            values[_WHOLE] = bson.decode(self.raw, CODEC)
        return cast("dict[str, Any]", values[_WHOLE])

    @property
    def id(self) -> dict[str, Any]:
        """The resume token: unique, and the same at every delivery; empty if the event has none."""
        return self._part(layout.TOKEN) or {}

    @property
    def token(self) -> ResumeToken:
        """The resume token as the bytes that the server sent."""
        return layout.resume_token(self._buffer, self.parts) or ResumeToken(_EMPTY)

    @property
    def operation_type(self) -> str:
        """``insert``, ``update``, … or any other type; empty if the event has none."""
        found = self._parts
        if found is None:  # as in parts, but inline, like all that most handlers read
            found = self._parts = parts(self._buffer, self._start)
        return layout.NAMES_OF_OPERATIONS[found[layout.OPERATION]]

    @property
    def ns(self) -> Namespace | None:
        """The namespace; ``None`` for an invalidate, or if the event names no database."""
        raw = self.parts[NAMESPACE]
        return None if raw is None else _namespaces[raw]

    @property
    def to(self) -> Namespace | None:
        """The new namespace of a rename."""
        return namespace(self._other(b"to", dict))

    @property
    def document_key(self) -> dict[str, Any] | None:
        """``_id`` of the document, and its shard key, if any, *before* an update or a replace."""
        return self._part(DOCUMENT_KEY)

    @property
    def full_document(self) -> dict[str, Any] | None:
        """The document after the change; if ``None``, see :attr:`full_document_image`."""
        return self._part(FULL_DOCUMENT)

    @property
    def full_document_image(self) -> Image:
        """Whether ``full_document`` is absent, null or present."""
        return self._image(b"fullDocument")

    @property
    def full_document_before_change(self) -> dict[str, Any] | None:
        """The document before the change."""
        return self._part(layout.BEFORE_CHANGE)

    @property
    def full_document_before_change_image(self) -> Image:
        """Whether ``full_document_before_change`` is absent, null or present."""
        return self._image(b"fullDocumentBeforeChange")

    @property
    def update_description(self) -> dict[str, Any] | None:
        """``updatedFields``, ``removedFields``, ``truncatedArrays``, ``disambiguatedPaths``."""
        return self._part(layout.UPDATE)

    @property
    def operation_description(self) -> dict[str, Any] | None:
        """What a DDL event did (with expanded events)."""
        return self._other(b"operationDescription", dict)

    @property
    def cluster_time(self) -> Timestamp | None:
        """The oplog time. Not unique: a transaction's events share it."""
        return layout.cluster_time(self.parts)

    @property
    def wall_time(self) -> datetime | None:
        """The server's clock when the change happened; ``None`` beyond the years 1 to 9999."""
        return self._other(b"wallTime", datetime)

    @property
    def collection_uuid(self) -> Binary | None:
        """The collection's UUID as a ``Binary`` (with expanded events)."""
        value = self._other(b"collectionUUID", Binary)
        return value if value is not None and value.subtype == UUID_SUBTYPE else None

    @property
    def ns_type(self) -> str | None:
        """``collection``, ``view`` or ``timeseries`` (server 8.1, with expanded events)."""
        return self._other(b"nsType", str)

    @property
    def lsid(self) -> dict[str, Any] | None:
        """The session of the transaction to which the change belongs."""
        return self._other(b"lsid", dict)

    @property
    def txn_number(self) -> int | None:
        """The transaction's number in its session."""
        return self._other(b"txnNumber", int)

    @property
    def key(self) -> bytes | None:
        """The key that orders events: collection and ``_id``, the same bytes for equal values.

        ``None`` for an event that is not about one document: it is a barrier for all documents.
        """
        keys, start = self._keys, self._start
        if keys is not None and (known := keys.get(start)) is not None:
            self._parts, key = known
            return key
        # As in parts, but inline: every event needs its key.
        offsets = self._parts = self._parts or parts(self._buffer, start)
        key = document_key(self._buffer, start, offsets)
        if keys is not None:
            keys[start] = offsets, key
        return key

    @property
    def key_text(self) -> str | None:
        """The document's ``_id`` as canonical Extended JSON: ``{"_id":{"$oid":"65a0…"}}``.

        A text to store: it keeps every BSON type, and outlasts a change of the shard key. ``None``
        without a document key. The server holds some values equal that differ here, such as ``7``
        and ``NumberLong(7)``; :attr:`key` does not tell them apart either.
        """
        key = self.field_bytes("documentKey")
        return None if key is None else key_text(id_alone(key))

    @property
    def is_ddl(self) -> bool:
        """Whether it is not about a document: ``drop``, ``rename``, ``snapshotBegin``, …"""
        operation = self.parts[layout.OPERATION]
        return operation not in _OF_DOCUMENTS and bool(operation) and self.key is None

    @property
    def size(self) -> int:
        """The length of :attr:`raw` in bytes."""
        return int(INT32(self._buffer, self._start)[0])

    def field_bytes(self, name: str) -> bytes | None:
        """The BSON document in a top-level field, such as ``fullDocument``, cut out undecoded.

        ``None`` if the event has no such field, or if its value is not a document (null, an array,
        a date, …). If the field is repeated, the last one counts.
        """
        part = _PARTS.get(name)
        if part is not None:
            offsets = self.parts
            begin, end = offsets[part], offsets[part + 1]
            return None if begin < 0 else self._buffer[begin:end]
        kind, at = elements(self._buffer, self._start).get(name.encode(), (0, 0))
        return document_at(self._buffer, at) if kind == DOCUMENT else None

    def fresh(self) -> ChangeEvent:
        """The event as the server sent it, without changes that a handler made in its fields."""
        return ChangeEvent(self._buffer, self._start, self._shared)

    @property
    def parts(self) -> layout.Parts:
        """The offsets of :mod:`tailrace.event.layout`, for this service's own code."""
        found = self._parts = self._parts or parts(self._buffer, self._start)
        return found

    def between(self, begin: int, end: int) -> bytes:
        """The bytes between two offsets of :attr:`parts`."""
        return self._buffer[begin:end]

    def cached(self, kind: Hashable) -> Any:
        """What :meth:`cache` has stored last for this kind, if anything."""
        return None if self._shared is None else self._shared.get((kind, self._start))

    def cache(self, kind: Hashable, value: Any) -> None:
        """Stores an immutable result about this event until every handler of its scope has handled
        it. Events of tests store nothing."""
        if self._shared is not None:
            self._shared[kind, self._start] = value

    def _part(self, part: int) -> dict[str, Any] | None:
        """A document that the layout locates, decoded once."""
        values = self._values
        if values is None:
            values = self._values = {}
        elif part in values:
            return cast("dict[str, Any] | None", values[part])
        offsets = self._parts
        if offsets is None:
            offsets = self._parts = parts(self._buffer, self._start)
        begin, end = offsets[part], offsets[part + 1]
        if part == DOCUMENT_KEY and begin >= 0:
            key = values[part] = decoded_key(self._buffer, begin, end)
            return key
        value = values[part] = None if begin < 0 else bson.decode(self._buffer[begin:end], CODEC)
        return value

    def _other(self, name: bytes, kind: type[T]) -> T | None:
        """Any other field, decoded once; ``None`` if it has another type."""
        values = self._values
        if values is None:
            values = self._values = {}
        if name not in values:
            values[name] = decoded_field(self._buffer, self._start, name)
        value = values[name]
        # In bson, Code is a subclass of str; in Python, bool is a subclass of int.
        if isinstance(value, kind) and not isinstance(value, (Code, bool)):
            return value
        return None

    def _image(self, name: bytes) -> Image:
        kind, _ = elements(self._buffer, self._start).get(name, (0, 0))
        if kind == NULL:
            return Image.NULL
        return Image.PRESENT if kind == DOCUMENT else Image.ABSENT

    def __repr__(self) -> str:
        return f"<ChangeEvent {self.operation_type} {self.ns or ''} {self.token.digest}>"


_EMPTY = bson.encode({})
_WHOLE = -1  # the key of the whole document among the decoded values
_PARTS = {  # by name, the fields whose offsets the layout finds
    "_id": layout.TOKEN,
    "fullDocument": FULL_DOCUMENT,
    "documentKey": DOCUMENT_KEY,
    "updateDescription": layout.UPDATE,
    "fullDocumentBeforeChange": layout.BEFORE_CHANGE,
}
_OF_DOCUMENTS = frozenset({b"insert", b"update", b"replace", b"delete", b"read"})
_namespaces: Memo[bytes, Namespace | None] = Memo(lambda raw: namespace(bson.decode(raw, CODEC)))
