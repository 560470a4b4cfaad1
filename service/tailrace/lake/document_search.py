"""Finds the events of one document in a lake: the newest segments first. Needs the extra ``lake``.

A segment has no index of its documents: its column of keys is searched as a whole. Other columns
are read only where a segment has the document.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bson import decode
from bson.timestamp import Timestamp

from tailrace.errors import SegmentUnreadable
from tailrace.event import ChangeEvent
from tailrace.event.document_key import identity, key_text
from tailrace.event.document_tree import to_bson, tree_of
from tailrace.lake.segment import LAKE_FILE, Documents, Footer, lake_identity, segment_name
from tailrace.lake.storage import scheme
from tailrace.lake.writable_lake import WritableLake, open_storage

_COLUMNS = ["ordinal", "cluster_seconds", "cluster_increment", "token", "operation"]
_COLUMNS += ["database", "collection"]
_MOST = 10
"""So many events are enough."""


@dataclass(frozen=True, slots=True)
class LandedEvent:
    """An event of the document, without documents, and its row in a segment: number and path."""

    event: ChangeEvent
    number: int
    segment: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class SoughtDocument:
    """A document: its ``_id`` as the BSON documents that events may have it in, the element that
    :func:`tailrace.event.document_key.identity` gives, and database and collection, if known.

    ``since``: events before this cluster time are not looked for.
    """

    written: Sequence[bytes]
    element: bytes
    collection: tuple[str, str] | None
    since: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """``events``: newest first. ``searched``: so many of the ``segments``; ``complete``: whether
    the others need no look. ``lake``: its identity, empty if there is none yet."""

    events: Sequence[LandedEvent] = ()
    searched: int = 0
    segments: int = 0
    complete: bool = True
    lake: str = ""


def search(path: str, scope: str, sought: SoughtDocument, seconds: float) -> Found:
    """The last events of a document.

    Searches for at most ``seconds``, and one segment at least. Blocks. Raises ``OSError`` and
    :class:`SegmentUnreadable`.
    """
    if not scheme(path) and not Path(path).is_dir():
        return Found()
    storage = open_storage(path)
    lake = WritableLake(path, storage, lake_identity(storage.read(LAKE_FILE)))
    numbers = lake.segments(scope)
    until = time.monotonic() + seconds
    landed: list[LandedEvent] = []
    for done, number in enumerate(reversed(numbers)):
        if len(landed) >= _MOST or (done and time.monotonic() > until):
            return Found(landed, done, len(numbers), len(landed) >= _MOST, lake.id)
        footer = lake.footer(scope, number)
        newest = footer.cluster_time
        if sought.since is not None and newest is not None and newest < sought.since:
            return Found(landed, done, len(numbers), True, lake.id)
        try:
            landed += _events(lake, footer, sought)
        except pa.ArrowException as error:
            raise SegmentUnreadable(f"{lake.where(scope, number)}: {error}") from error
    return Found(landed, len(numbers), len(numbers), True, lake.id)


def _events(lake: WritableLake, footer: Footer, sought: SoughtDocument) -> Iterator[LandedEvent]:
    """The events of the document in one segment, the last one first."""
    if not footer.rows:
        return
    name, where = segment_name(footer.segment), lake.where(footer.scope, footer.segment)
    file = pq.ParquetFile(pa.BufferReader(lake.storage.read(f"{footer.scope}/{name}")))
    elements, is_key = _matchers(footer.documents, sought)
    keys = file.read(columns=["document_key"]).column(0)
    # Arrow looks for the bytes, without Python's lock; what it finds is compared as BSON.
    matches = [pc.match_substring(keys, each) for each in elements]
    rows = sorted({row for each in matches for row in pc.indices_nonzero(each).to_pylist()})
    rows = [row for row in rows if is_key(keys[row].as_py())]
    if not rows:
        return
    for row in reversed(file.read(columns=_COLUMNS).take(rows).to_pylist()):
        if sought.collection in (None, (row["database"], row["collection"])):
            yield LandedEvent(_event(row), footer.segment, where, row["ordinal"])


def _event(row: dict[str, Any]) -> ChangeEvent:
    document = {
        "_id": decode(row["token"]),
        "operationType": row["operation"],
        "ns": {"db": row["database"], "coll": row["collection"]},
    }
    if (seconds := row["cluster_seconds"]) is not None:
        document["clusterTime"] = Timestamp(seconds, row["cluster_increment"] or 0)
    return ChangeEvent.from_document(document)


def _matchers(
    documents: Documents, sought: SoughtDocument
) -> tuple[Sequence[bytes], Callable[[Any], bool]]:
    """What a document key with this ``_id`` contains, and whether a key has it."""
    if documents is Documents.BSON:
        elements = [raw[4:-1] for raw in sought.written]
        return elements, lambda key: identity(key, 0) == sought.element

    def is_key(key: str) -> bool:
        return identity(to_bson(tree_of(key)), 0) == sought.element

    return [key_text(raw)[1:-1].encode() for raw in sought.written], is_key
