"""Where events do not tell their effects: the documents as of a moment, from earlier segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import bson
import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from tailrace.event import ChangeEvent
from tailrace.event.cluster_position import position
from tailrace.event.codec import CODEC
from tailrace.event.document_key import id_alone
from tailrace.event.namespace import Namespace, namespace
from tailrace.event.snapshot_barrier import SnapshotBarrier
from tailrace.lake.segment import Documents, segment_name
from tailrace.pipeline.location import Location
from tailrace.pipeline.segments import LandedLake
from tailrace.spark import values
from tailrace.spark.current_state import CurrentState
from tailrace.spark.landed_change import OF_MANY, LandedChange
from tailrace.spark.options import Options
from tailrace.spark.planning import Segments
from tailrace.spark.reading import RowBatch, batches_of, rows_of, times

COLUMNS = (
    *("ordinal", "cluster_seconds", "cluster_increment", "operation", "database", "collection"),
    *("document_key", "full_document", "update_description", "extra"),
)
OF_DOCUMENTS = ("insert", "replace", "update", "read", "delete")


def needs_state(rows: RowBatch, newest: int) -> bool:
    """Whether these rows have an event whose effects depend on the documents that are there."""
    batch = rows.batch
    operation, keys = batch.column("operation"), batch.column("document_key")
    operations = set(pc.unique(operation).to_pylist())
    if operations & {*OF_MANY} or batch.column("cluster_seconds").null_count:
        return True
    at = times(batch)
    if at[0] < newest or (np.diff(at) < 0).any():
        return True
    if _partial_updates(batch):
        return True
    if not operations & {"delete", "update", "replace"} or values.are_object_ids(keys):
        return False
    joint = bool(at[0] == newest or (np.diff(at) == 0).any())
    texts = operation.to_pylist(), keys.to_pylist(), batch.column("full_document").to_pylist()
    return any(
        _is_ambiguous(operation, key, document, joint=joint)
        for operation, key, document in zip(*texts, strict=True)
        if key is not None and operation in OF_DOCUMENTS[1:]
    )


def _is_ambiguous(
    operation: str, key: bytes | str, document: bytes | str | None, *, joint: bool
) -> bool:
    """Whether the document that changes may be another one, or get another key.

    ``joint``: whether the event may share a transaction with others.
    """
    if operation == "replace" and document is not None and not _begins_with(document, key):
        return True
    raw = values.to_bson(key) if isinstance(key, str) else key
    sharded = len(id_alone(raw)) < len(raw)
    return sharded and (operation == "delete" or (joint and operation in ("update", "replace")))


def _begins_with(document: bytes | str, key: bytes | str) -> bool:
    if isinstance(key, bytes) and isinstance(document, bytes):
        element = id_alone(key)[4:-1]
        return document.startswith(element, 4)
    return values.id_text(document) == values.id_text(key)


def _partial_updates(batch: pa.RecordBatch) -> bool:
    without = pc.is_null(batch.column("full_document"))
    found = pc.any(pc.and_(pc.equal(batch.column("operation"), "update"), without)).as_py()
    return bool(found)


def state_before(segments: Segments, options: Options, number: int, at: int) -> CurrentState:
    """The documents before the rows of a batch: the one with the index ``at`` in its segment."""
    lake = LandedLake(Location.of(options.lake, options.access), segments.lake)
    earlier = [each for each in lake.numbers(segments.scope) if each < number]
    there = set(earlier)
    first = number
    while first - 1 in there:
        first -= 1
    removed = ""
    if first > segments.begin:
        file = lake.file(segments.scope, first)
        removed = f"{file}: the segments before it, which the query has read, were removed"
    state = CurrentState(_needs_documents(segments, options, number), removed)
    for each in range(first, number + 1):
        file = lake.location / segments.scope / segment_name(each)
        for index, batch in enumerate(batches_of(file, COLUMNS)):
            if each == number and index == at:
                break
            of_file = RowBatch(str(file), each, batch)
            with of_file.naming_faults():
                for _, change in changes_of(of_file, state):
                    for _ in state.apply(change):
                        pass
    state.shown = True
    return state


def _needs_documents(segments: Segments, options: Options, number: int) -> bool:
    """Whether an event from this segment on takes more than the keys of the documents."""
    names = ("ordinal", "operation", "full_document")
    for each in segments.numbers[number - segments.first :]:
        for rows in rows_of(segments, options, each, names):
            if "rename" in pc.unique(rows.batch.column("operation")).to_pylist():
                return True
            if _partial_updates(rows.batch):
                return True
    return False


def changes_of(rows: RowBatch, state: CurrentState) -> Iterator[tuple[int, LandedChange]]:
    """The events with their ordinals; an event without a time has that of the one before."""
    time = state.time
    columns = [rows.batch.column(name).to_pylist() for name in COLUMNS]
    for row in zip(*columns, strict=True):
        ordinal, seconds, increment = row[:3]
        time = time if seconds is None else position(seconds, increment or 0)
        yield ordinal, _change(row[3:], time, rows.documents)


def _change(row: Sequence[Any], time: int, landed: Documents) -> LandedChange:
    operation, database, collection, key, document, description, extra = row
    of = None if database is None else Namespace(database, collection)
    others: dict[str, Any] = {}
    if extra is not None and (operation in OF_MANY or (operation == "update" and document is None)):
        others = bson.decode(values.to_bson(extra) if isinstance(extra, str) else extra, CODEC)
    if operation in OF_DOCUMENTS:
        raw = values.to_bson(key) if isinstance(key, str) else key
        looked_up = "fullDocument" in others
        return LandedChange(operation, of, time, raw, document, description, looked_up)
    to = namespace(others["to"]) if isinstance(others.get("to"), Mapping) else None
    snapshot = None
    if "snapshot" in others:
        snapshot = SnapshotBarrier.of(ChangeEvent.from_document(others))
    return LandedChange(operation, of, time, to=to, snapshot=snapshot)
