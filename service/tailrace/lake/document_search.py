"""Finds the events of one document in a lake: the newest segments first. Needs the extra ``lake``.

A segment has no index of its documents: its column of keys is read as a whole.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from bson import decode, encode, json_util
from bson.timestamp import Timestamp

from tailrace.errors import SegmentUnreadable
from tailrace.event import ChangeEvent
from tailrace.event.document_key import identity, key_text
from tailrace.lake.segment import LAKE_FILE, Documents, lake_identity, segment_name
from tailrace.lake.storage import scheme
from tailrace.lake.writable_lake import WritableLake, open_storage

_COLUMNS = ["ordinal", "cluster_seconds", "cluster_increment", "token", "operation"]
_COLUMNS += ["database", "collection", "document_key"]
_MOST = 10
"""So many events are enough."""


@dataclass(frozen=True, slots=True)
class LandedEvent:
    """An event of the document, without documents, and its row in ``segment`` (a path)."""

    event: ChangeEvent
    segment: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class SoughtDocument:
    """A document: its ``_id`` as the BSON documents that events may have it in, the element that
    :func:`tailrace.event.document_key.identity` gives, and database and collection, if known."""

    written: Sequence[bytes]
    element: bytes
    collection: tuple[str, str] | None


def search(
    path: str, scope: str, sought: SoughtDocument, seconds: float
) -> tuple[list[LandedEvent], tuple[int, int]]:
    """The last events of a document, newest first; how many segments were searched, and of how
    many.

    Searches for at most ``seconds``, and one segment at least. Blocks. Raises ``OSError`` and
    :class:`SegmentUnreadable`.
    """
    if not scheme(path) and not Path(path).is_dir():
        return [], (0, 0)
    storage = open_storage(path)
    lake = WritableLake(path, storage, lake_identity(storage.read(LAKE_FILE)))
    numbers = lake.segments(scope)
    until = time.monotonic() + seconds
    found: list[LandedEvent] = []
    for done, number in enumerate(reversed(numbers)):
        if len(found) >= _MOST or (done and time.monotonic() > until):
            return found, (done, len(numbers))
        try:
            found += _events(lake, scope, number, sought)
        except pa.ArrowException as error:
            raise SegmentUnreadable(f"{lake.where(scope, number)}: {error}") from error
    return found, (len(numbers), len(numbers))


def _events(
    lake: WritableLake, scope: str, number: int, sought: SoughtDocument
) -> Iterator[LandedEvent]:
    """The events of the document in one segment, the last one first."""
    footer = lake.footer(scope, number)
    if not footer.rows:
        return
    content = pa.BufferReader(lake.storage.read(f"{scope}/{segment_name(number)}"))
    table = pq.read_table(content, columns=_COLUMNS)
    is_key = _of_bson(sought) if footer.documents is Documents.BSON else _of_text(sought)
    keys = table.column("document_key").to_pylist()
    for at in reversed([at for at, found in enumerate(keys) if found and is_key(found)]):
        row = table.slice(at, 1).to_pylist()[0]
        if sought.collection in (None, (row["database"], row["collection"])):
            yield LandedEvent(_event(row), lake.where(scope, number), row["ordinal"])


def _event(row: dict[str, Any]) -> ChangeEvent:
    document = {
        "_id": decode(row["token"]),
        "operationType": row["operation"],
        "ns": {"db": row["database"], "coll": row["collection"]},
    }
    if (seconds := row["cluster_seconds"]) is not None:
        document["clusterTime"] = Timestamp(seconds, row["cluster_increment"] or 0)
    return ChangeEvent.from_document(document)


def _of_bson(sought: SoughtDocument) -> Callable[[bytes], bool]:
    """Whether a document key as BSON has this ``_id``; the bytes are compared first."""
    elements = [raw[4:-1] for raw in sought.written]
    return lambda found: (
        any(each in found for each in elements) and identity(found, 0) == sought.element
    )


def _of_text(sought: SoughtDocument) -> Callable[[str], bool]:
    """Whether a document key as canonical Extended JSON has this ``_id``."""
    elements = [key_text(raw)[1:-1] for raw in sought.written]

    def is_key(found: str) -> bool:
        if not any(each in found for each in elements):
            return False
        document = json_util.loads(found, json_options=json_util.CANONICAL_JSON_OPTIONS)
        return identity(encode(document), 0) == sought.element

    return is_key
