"""One change event, as the server sent it: its bytes, and its fields when they are asked for."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import bson
from bson import Binary, Code, DBRef, Int64, ObjectId
from bson.binary import UUID_SUBTYPE
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.timestamp import Timestamp

from tailrace.event import layout
from tailrace.event.bson_walk import DOCUMENT, INT32, document_at, elements
from tailrace.model.token import ResumeToken

T = TypeVar("T")

# Dates beyond Python's years come as DatetimeMS, UUIDs as Binary: nothing fails, nothing is
# guessed. Text that is not UTF-8 is shown with replacement characters; `raw` has it exactly.
CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",
)


class Namespace(NamedTuple):
    """Where a change happened. ``coll`` is ``None`` for changes of a whole database."""

    db: str
    coll: str | None = None

    def __str__(self) -> str:
        return self.db if self.coll is None else f"{self.db}.{self.coll}"


class Image(Enum):
    """Why an image is not a document: the difference matters (field notes: null is no error)."""

    ABSENT = "absent"
    """There is no such field (the scope did not ask for it), or it holds no document."""
    NULL = "null"
    """The server looked and found none: deleted since, or no image was kept."""
    PRESENT = "present"


class ChangeEvent:
    """A change event of MongoDB; unknown types and fields pass through unchanged.

    ``raw`` is the event's BSON, ``document`` the whole of it decoded; the other attributes read
    single fields, and are ``None`` where the event has no such field, or one of another type (a
    pipeline may reshape events in any way that keeps ``_id``). ``id``, ``operation_type``,
    ``ns``, ``document_key``, ``cluster_time`` and ``full_document`` are read where they stand; the
    first of the others decodes the event. What a handler changes in what it gets is seen by no
    other handler and by no later attempt.
    """

    __slots__ = ("_buffer", "_document", "_image", "_start")

    def __init__(self, buffer: bytes, start: int = 0) -> None:
        self._buffer = buffer
        self._start = start
        self._document: dict[str, Any] | None = None
        self._image: dict[str, Any] | None = None

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
        """The event's BSON document, exactly as it came."""
        start = self._start
        return self._buffer[start : start + INT32(self._buffer, start)[0]]

    @property
    def document(self) -> dict[str, Any]:
        """Every field, decoded."""
        document = self._document
        if document is None:
            document = self._document = bson.decode(self.raw, CODEC)
        return document

    @property
    def id(self) -> dict[str, Any]:
        """The resume token: unique and the same at every delivery of this event.

        Every event of a stream has one. It is empty in an event made without.
        """
        if self._document is None and (raw := self._field(b"_id")) is not None:
            return bson.decode(raw, CODEC)
        return self._get("_id", dict) or {}

    @property
    def token(self) -> ResumeToken:
        """The resume token as the bytes that came."""
        return ResumeToken(self._field(b"_id") or _EMPTY)

    @property
    def operation_type(self) -> str:
        """``insert``, ``update``, …, or a type that this version has never heard of.

        Empty where the event has none.
        """
        if self._document is None:
            return layout.operation_at(self._buffer, self._start)
        return self._get("operationType", str) or ""

    @property
    def ns(self) -> Namespace | None:
        """The namespace; ``None`` for an invalidate, and where the database is not named."""
        if self._document is None and (raw := self._field(b"ns")) is not None:
            return _namespace(bson.decode(raw, CODEC))
        return _namespace(self._get("ns", dict))

    @property
    def to(self) -> Namespace | None:
        """The new namespace of a rename."""
        return _namespace(self._get("to", dict))

    @property
    def document_key(self) -> dict[str, Any] | None:
        """``_id`` of the changed document, and its shard key where there is one."""
        if self._document is None and (raw := self._field(b"documentKey")) is not None:
            return bson.decode(raw, CODEC)
        return self._get("documentKey", dict)

    @property
    def full_document(self) -> dict[str, Any] | None:
        """The document after the change; see :attr:`full_document_image` where it is ``None``."""
        if self._image is None and self._document is None:
            raw = layout.image_at(self._buffer, self._start)
            if raw is not None:
                self._image = bson.decode(raw, CODEC)
            elif self.raw.find(b"fullDocument\0") < 0:
                return None  # a deletion, mostly: nothing to decode
        return self._get("fullDocument", dict) if self._image is None else self._image

    @property
    def full_document_image(self) -> Image:
        """Whether ``full_document`` is absent, null or present."""
        return self._presence("fullDocument")

    @property
    def full_document_before_change(self) -> dict[str, Any] | None:
        """The document before the change."""
        return self._get("fullDocumentBeforeChange", dict)

    @property
    def full_document_before_change_image(self) -> Image:
        """Whether ``full_document_before_change`` is absent, null or present."""
        return self._presence("fullDocumentBeforeChange")

    @property
    def update_description(self) -> dict[str, Any] | None:
        """``updatedFields``, ``removedFields``, ``truncatedArrays``, ``disambiguatedPaths``."""
        return self._get("updateDescription", dict)

    @property
    def operation_description(self) -> dict[str, Any] | None:
        """What a DDL event did (with expanded events)."""
        return self._get("operationDescription", dict)

    @property
    def cluster_time(self) -> Timestamp | None:
        """The oplog time. Not unique: a transaction's events share it."""
        if self._document is None:
            return layout.cluster_time_at(self._buffer, self._start)
        return self._get("clusterTime", Timestamp)

    @property
    def wall_time(self) -> datetime | None:
        """The server's clock when it happened; ``None`` beyond the years 1 to 9999."""
        return self._get("wallTime", datetime)

    @property
    def collection_uuid(self) -> Binary | None:
        """The collection's UUID as a ``Binary`` (with expanded events)."""
        value = self._get("collectionUUID", Binary)
        return value if value is not None and value.subtype == UUID_SUBTYPE else None

    @property
    def ns_type(self) -> str | None:
        """``collection``, ``view`` or ``timeseries`` (server 8.1, with expanded events)."""
        return self._get("nsType", str)

    @property
    def lsid(self) -> dict[str, Any] | None:
        """The session of the transaction that the change belongs to."""
        return self._get("lsid", dict)

    @property
    def txn_number(self) -> int | None:
        """The transaction's number in its session."""
        return self._get("txnNumber", int)

    @property
    def key(self) -> Hashable | None:
        """What orders events: collection and ``_id``; ``None`` for one that orders all.

        Only ``_id``: the rest of a sharded document's key may change during its life.
        """
        key = self.document_key
        if key is None:
            return None
        value = key.get("_id")
        if value.__class__ not in _PLAIN or value != value:
            value = bson.encode({"": value})
        return *(self.ns or (None, None)), value

    @property
    def lane(self) -> Hashable | None:
        """Orders events as :attr:`key` does, and is quicker to find; it means nothing elsewhere."""
        named = layout.document_named(self._buffer, self._start)
        return self.key if named is None else named

    def _field(self, name: bytes) -> bytes | None:
        return layout.field_at(self._buffer, self._start, name)

    def fresh(self) -> ChangeEvent:
        """The same event as it came, without what somebody has changed in its decoded fields."""
        return ChangeEvent(self._buffer, self._start)

    def _presence(self, field: str) -> Image:
        if self.document.get(field, _NOTHING) is None:
            return Image.NULL
        return Image.ABSENT if self._get(field, dict) is None else Image.PRESENT

    def _get(self, field: str, kind: type[T]) -> T | None:
        """A field that has to be decoded; ``None`` where it is not of that type."""
        value: Any = self.document.get(field)
        if isinstance(value, DBRef):
            # To bson every document with `$ref` and `$id` in it is a reference.
            value_type, at = elements(self._buffer, self._start)[field.encode()]
            value = (
                bson.decode(document_at(self._buffer, at), CODEC)
                if value_type == DOCUMENT
                else None
            )
        # Code is a kind of str to bson, and a truth value a kind of int to Python.
        if isinstance(value, kind) and not isinstance(value, (Code, bool)):
            return value
        return None

    def __repr__(self) -> str:
        return f"<ChangeEvent {self.operation_type} {self.ns or ''} {self.token.digest}>"


# Types of `_id` that can be keys themselves; decimals, code and documents have no hash, and NaN
# equals nothing, so of those the bytes are the key.
_PLAIN = frozenset({ObjectId, str, int, Int64, float, bool, bytes, Binary, datetime, Timestamp})


_EMPTY = bson.encode({})
_NOTHING = object()


def _namespace(value: Mapping[str, Any] | None) -> Namespace | None:
    """The namespace that a document names; of one without a database nothing can be said."""
    database, collection = (value.get("db"), value.get("coll")) if value else (None, None)
    if type(database) is not str:
        return None
    return Namespace(database, collection if type(collection) is str else None)
