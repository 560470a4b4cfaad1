"""The format of a segment: the contract between the daemon and the pipeline.

A lake is a directory, or a prefix of an object store, with ``lake.json`` (its identity) and one
directory per scope. Segments are numbered from 0 without gaps::

    lake.json
    orders/seg-000000000000.parquet
    orders/seg-000000000001.parquet

A segment is immutable, complete when it appears, and never ends inside a transaction. Its footer
has the position of the stream after it: the daemon continues after the newest segment of a scope,
which must not be removed. A segment without rows records a gap, or a new writer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bson.timestamp import Timestamp

from tailrace.errors import SegmentUnreadable
from tailrace.model import ResumeToken
from tailrace.model.record_codec import document, instance
from tailrace.model.snapshot import StoredRows

FORMAT = 1
"""The version of the layout. A reader refuses any other version."""

FOOTER_KEY = b"tailrace"
"""The key of the footer's JSON in the Parquet file's own key-value metadata."""

LAKE_FILE = "lake.json"
"""``{"format": 1, "id": "<uuid>"}``, written once, before the first segment."""

NO_CHECKSUM = "00000000"
"""The footer's ``checksum`` until the file is complete (``segment_metadata``)."""

_NAME = re.compile(r"seg-(\d{12})\.parquet")


class Documents(StrEnum):
    """How a segment's document columns store documents."""

    BSON = "bson"
    """Binary columns: the BSON as the server sent it."""
    CANONICAL = "canonical"
    """Text columns: canonical Extended JSON v2."""


class LogicalType(StrEnum):
    """The type of a column, in the words of Parquet's logical types."""

    INT64 = "int64"
    STRING = "string"
    BINARY = "binary"
    MILLISECONDS = "timestamp[ms, UTC]"
    DOCUMENT = "document"
    """Binary (BSON) or string (Extended JSON), as the footer's ``documents`` says."""


COLUMNS: Mapping[str, LogicalType] = {
    "scope": LogicalType.STRING,
    "segment": LogicalType.INT64,
    "ordinal": LogicalType.INT64,
    "cluster_seconds": LogicalType.INT64,
    "cluster_increment": LogicalType.INT64,
    "token": LogicalType.BINARY,
    "wall_time": LogicalType.MILLISECONDS,
    "operation": LogicalType.STRING,
    "database": LogicalType.STRING,
    "collection": LogicalType.STRING,
    "document_key": LogicalType.DOCUMENT,
    "full_document": LogicalType.DOCUMENT,
    "full_document_before_change": LogicalType.DOCUMENT,
    "update_description": LogicalType.DOCUMENT,
    "extra": LogicalType.DOCUMENT,
}
"""A segment's columns, in order.

``ordinal`` numbers the landed events of a scope from 0; cluster time and ordinal order them.
``token`` is the event's ``_id`` as BSON. ``extra`` is a document of the event's other fields
(``to``, ``lsid``, ``txnNumber``, ``operationDescription``, …), or null. It also has each field that
its column cannot hold: null, another type, text that is not UTF-8, a wall time outside the years 1
to 9999, a namespace with other fields than ``db`` and ``coll``. Only ``scope``, ``segment``,
``ordinal``, ``token`` and ``operation`` are never null.
"""


@dataclass(frozen=True, slots=True)
class Footer:
    """The record of a segment, in the metadata of its file.

    ``first_ordinal`` is one more than the previous segment's ``last_ordinal``, even without rows; a
    ``last_ordinal`` of -1 means no event so far. ``token`` and ``cluster_time`` are those of the
    last event landed so far, and ``fingerprint`` is that of its pipeline and options. ``epoch``
    counts the writers of the scope: each begins a new epoch with a segment without rows. ``gap`` is
    the document of the gap just before this segment. ``writer`` is unique to the process, which
    recognises by it its own segment after an unknown outcome.
    """

    lake: str
    scope: str
    segment: int
    rows: int
    first_ordinal: int
    last_ordinal: int
    token: ResumeToken | None
    cluster_time: Timestamp | None
    cluster: str
    fingerprint: str
    epoch: int
    documents: Documents
    gap: Mapping[str, Any] | None = None
    writer: str = ""
    snapshot: StoredRows | None = None
    """Which rows of the last snapshot are landed so far."""
    owner_epoch: int = 0
    """The epoch of the scope's owner that wrote this segment, as in logs and other handlers.

    No write is refused by it: if the store is lost, its epochs restart while the lake continues.
    """

    def to_json(self) -> bytes:
        """The value of :data:`FOOTER_KEY`, with room for a checksum at its end."""
        record = {"format": FORMAT, **document(self), "checksum": NO_CHECKSUM}
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes, *, where: str) -> Footer:
        """Reads what :meth:`to_json` wrote; else raises :class:`SegmentUnreadable`."""
        try:
            return instance(cls, json.loads(text), FORMAT)
        except (ValueError, RecursionError) as error:
            raise SegmentUnreadable(
                f"{where}: its footer is not that of a segment: {error}. Nothing was changed"
            ) from error


@dataclass(frozen=True, slots=True)
class _LakeFile:
    id: str


def lake_identity(text: bytes) -> str:
    """The identity in a :data:`LAKE_FILE`; raises ``ValueError`` or ``RecursionError``."""
    return instance(_LakeFile, json.loads(text), FORMAT).id


def segment_name(number: int) -> str:
    return f"seg-{number:012d}.parquet"


def segment_number(name: str) -> int | None:
    """The segment number in a file name; ``None`` if the file is not a segment."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None
