"""One change event, as the server sent it: its bytes, and its fields when they are asked for."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, cast

import bson
from bson import Binary, Int64, ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.timestamp import Timestamp

from service.model.bson_walk import elements
from service.model.token import ResumeToken

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
    """The server sent no such field: the scope did not ask for it."""
    NULL = "null"
    """The server looked and found none: deleted since, or no image was kept."""
    PRESENT = "present"


class ChangeEvent:
    """A change event of MongoDB; unknown types and fields pass through unchanged.

    ``raw`` is the event's BSON, ``document`` the whole of it decoded; the other attributes read
    single fields, and are ``None`` where the event has no such field. Handlers must not change
    what they get: other handlers see the same objects.
    """

    __slots__ = ("_buffer", "_document", "_end", "_start")

    def __init__(
        self, buffer: bytes, start: int, end: int, document: dict[str, Any] | None = None
    ) -> None:
        # `start` is an array element, not a document: finding the document costs a search for
        # its name's end, which few handlers need.
        self._buffer = buffer
        self._start = start
        self._end = end
        self._document = document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ChangeEvent:
        """An event for tests of handlers: ``document`` as the server would send it."""
        return cls.from_raw(bson.encode(document))

    @classmethod
    def from_raw(cls, raw: bytes) -> ChangeEvent:
        """An event from its BSON document."""
        return cls(b"\x03\0" + raw, 0, len(raw) + 2)

    @property
    def raw(self) -> bytes:
        """The event's BSON document, exactly as it came."""
        return self._buffer[self._buffer.index(0, self._start + 1) + 1 : self._end]

    @property
    def document(self) -> dict[str, Any]:
        """Every field, decoded."""
        document = self._document
        if document is None:
            document = self._document = bson.decode(self.raw, CODEC)
        return document

    @property
    def id(self) -> dict[str, Any]:
        """The resume token: unique and the same at every delivery of this event."""
        return cast("dict[str, Any]", self.document["_id"])

    @property
    def token(self) -> ResumeToken:
        """The resume token as the bytes that came."""
        raw = self.raw
        at = elements(raw, 0)[b"_id"][1]
        return ResumeToken(raw[at : at + int.from_bytes(raw[at : at + 4], "little")])

    @property
    def operation_type(self) -> str:
        """``insert``, ``update``, …, or a type that this version has never heard of."""
        return cast(str, self.document.get("operationType", ""))

    @property
    def ns(self) -> Namespace | None:
        """The namespace; ``None`` for an invalidate."""
        return _namespace(self.document.get("ns"))

    @property
    def to(self) -> Namespace | None:
        """The new namespace of a rename."""
        return _namespace(self.document.get("to"))

    @property
    def document_key(self) -> dict[str, Any] | None:
        """``_id`` of the changed document, and its shard key where there is one."""
        return self.document.get("documentKey")

    @property
    def full_document(self) -> dict[str, Any] | None:
        """The document after the change; see :attr:`full_document_image` where it is ``None``."""
        return self.document.get("fullDocument")

    @property
    def full_document_image(self) -> Image:
        """Whether ``full_document`` is absent, null or present."""
        return self._image("fullDocument")

    @property
    def full_document_before_change(self) -> dict[str, Any] | None:
        """The document before the change."""
        return self.document.get("fullDocumentBeforeChange")

    @property
    def full_document_before_change_image(self) -> Image:
        """Whether ``full_document_before_change`` is absent, null or present."""
        return self._image("fullDocumentBeforeChange")

    @property
    def update_description(self) -> dict[str, Any] | None:
        """``updatedFields``, ``removedFields``, ``truncatedArrays``, ``disambiguatedPaths``."""
        return self.document.get("updateDescription")

    @property
    def operation_description(self) -> dict[str, Any] | None:
        """What a DDL event did (with expanded events)."""
        return self.document.get("operationDescription")

    @property
    def cluster_time(self) -> Timestamp | None:
        """The oplog time. Not unique: a transaction's events share it."""
        return self.document.get("clusterTime")

    @property
    def wall_time(self) -> datetime | None:
        """The server's clock when it happened."""
        return self.document.get("wallTime")

    @property
    def collection_uuid(self) -> Any:
        """The collection's UUID as a ``Binary`` (with expanded events)."""
        return self.document.get("collectionUUID")

    @property
    def ns_type(self) -> str | None:
        """``collection``, ``view`` or ``timeseries`` (server 8.1, with expanded events)."""
        return self.document.get("nsType")

    @property
    def lsid(self) -> dict[str, Any] | None:
        """The session of the transaction that the change belongs to."""
        return self.document.get("lsid")

    @property
    def txn_number(self) -> int | None:
        """The transaction's number in its session."""
        return self.document.get("txnNumber")

    @property
    def key(self) -> Hashable | None:
        """What orders events: collection and ``_id``; ``None`` for one that orders all.

        Only ``_id``: the rest of a sharded document's key may change during its life.
        """
        document = self.document
        key = document.get("documentKey")
        if key is None:
            return None
        value = key.get("_id")
        if value.__class__ not in _PLAIN or value != value:
            value = bson.encode({"": value})
        ns = document.get("ns") or _NOWHERE
        return ns.get("db"), ns.get("coll"), value

    def _image(self, field: str) -> Image:
        if field not in self.document:
            return Image.ABSENT
        return Image.NULL if self.document[field] is None else Image.PRESENT

    def __repr__(self) -> str:
        return f"<ChangeEvent {self.operation_type} {self.ns or ''} {self.token.digest}>"


_NOWHERE: Mapping[str, Any] = {}
# Types of `_id` that can be keys themselves; decimals, code and documents have no hash, and NaN
# equals nothing, so of those the bytes are the key.
_PLAIN = frozenset({ObjectId, str, int, Int64, float, bool, bytes, Binary, datetime, Timestamp})


def _namespace(value: Any) -> Namespace | None:
    return Namespace(value["db"], value.get("coll")) if value else None
