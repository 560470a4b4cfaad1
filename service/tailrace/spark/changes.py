"""The view of changes: what events do to the documents of each collection, as rows with a key.

Most events say that themselves, and are shown as they are, whole columns at once. From the first
event of a part on that does not (a drop, a rename, the end of a snapshot, an update without its
document, a delete in a sharded collection, an event that comes again), the documents are needed as
of that moment: they are folded from the earlier segments of the scope. Nothing is remembered, so a
batch is the same whenever it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from tailrace.event.cluster_position import increment_of, position, seconds_of
from tailrace.event.namespace import Namespace
from tailrace.spark import values
from tailrace.spark.current_state import CurrentState
from tailrace.spark.earlier import COLUMNS, OF_DOCUMENTS, changes_of, needs_state, state_before
from tailrace.spark.landed_change import KeyChange
from tailrace.spark.options import Options, arrow_schema
from tailrace.spark.planning import Segments
from tailrace.spark.reading import RowBatch, rows_of, times, timestamps

_EFFECTS = 4096
_BYTES = 4 * 1024 * 1024


def batches(segments: Segments, options: Options) -> Iterator[pa.RecordBatch]:
    """The effects of the events, in their order."""
    seconds, increment = segments.newest
    newest = position(seconds, increment)
    state: CurrentState | None = None
    effects = _Effects(segments.scope, options)
    for number in segments.numbers:
        for at, rows in enumerate(rows_of(segments, options, number, COLUMNS)):
            if state is None and needs_state(rows, newest):
                state = state_before(segments, options, number, at)
            if state is None:
                yield from effects.of_rows(rows)
            else:
                yield from effects.of_state(rows, state)
            newest = max(newest, int(times(rows.batch).max()))


@dataclass(slots=True)
class _Effects:
    """Makes record batches of effects."""

    scope: str
    options: Options
    _waiting: list[tuple[KeyChange, int, int]] = field(default_factory=list)
    _size: int = 0

    def of_rows(self, rows: RowBatch) -> Iterator[pa.RecordBatch]:
        """The effects of events that tell them."""
        batch = rows.batch
        chosen = pc.is_in(batch.column("operation"), pa.array(OF_DOCUMENTS))
        for name in ("database", "collection", "document_key"):
            chosen = pc.and_(chosen, pc.is_valid(batch.column(name)))
        if (since := self.options.since) is not None:
            chosen = pc.and_(chosen, pc.greater_equal(batch.column("cluster_seconds"), since))
        if self.options.collections:
            chosen = pc.and_(chosen, _within(batch, self.options.collections))
        batch = batch.filter(chosen)
        if not batch.num_rows:
            return
        with rows.naming_faults():
            keys = values.id_texts(batch.column("document_key"))
            if keys.null_count:  # without an _id, they are of no document
                there = pc.is_valid(keys)
                batch, keys = batch.filter(there), keys.filter(there)
            documents = values.documents(
                batch.column("full_document"), rows.documents, self.options.documents
            )
        gone = pc.equal(batch.column("operation"), "delete")
        yield self._shown(
            batch.column("database"),
            batch.column("collection"),
            keys,
            gone,
            pc.if_else(gone, pa.scalar(None, documents.type), documents),
            batch.column("cluster_seconds"),
            batch.column("cluster_increment"),
            batch.column("ordinal"),
        )

    def of_state(self, rows: RowBatch, state: CurrentState) -> Iterator[pa.RecordBatch]:
        """The effects of events on the documents that were there."""
        with rows.naming_faults():
            for ordinal, change in changes_of(rows, state):
                for effect in state.apply(change):
                    self._add(effect, change.time, ordinal)
                    if len(self._waiting) >= _EFFECTS or self._size >= _BYTES:
                        yield from self.taken()
            yield from self.taken()

    def taken(self) -> Iterator[pa.RecordBatch]:
        """What is waiting, which may be nothing."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        if not waiting:
            return
        effects = [effect for effect, _, _ in waiting]
        yield self._shown(
            pa.array([each.collection.db for each in effects]),
            pa.array([each.collection.coll for each in effects]),
            pa.array([each.key for each in effects]),
            pa.array([not each.there for each in effects]),
            values.converted([each.document for each in effects], self.options.documents),
            pa.array([seconds_of(time) for _, time, _ in waiting], pa.int64()),
            pa.array([increment_of(time) for _, time, _ in waiting], pa.int64()),
            pa.array([ordinal for _, _, ordinal in waiting], pa.int64()),
        )

    def _add(self, effect: KeyChange, time: int, ordinal: int) -> None:
        chosen, since = self.options.collections, self.options.since
        if chosen and effect.collection not in chosen:
            return
        if since is not None and seconds_of(time) < since:
            return
        self._waiting.append((effect, time, ordinal))
        self._size += len(effect.document or b"")

    def _shown(
        self,
        databases: pa.Array,
        collections: pa.Array,
        keys: pa.Array,
        gone: pa.Array,
        documents: pa.Array,
        seconds: pa.Array,
        increments: pa.Array,
        ordinals: pa.Array,
    ) -> pa.RecordBatch:
        columns = {
            "database": databases,
            "collection": collections,
            "key": keys,
            "operation": pc.if_else(gone, "delete", "upsert"),
            "document": documents,
            "cluster_time": timestamps(seconds),
            "sequence": pc.binary_join_element_wise(
                _padded(seconds, 10), _padded(increments, 10), _padded(ordinals, 18), ""
            ),
            "scope": pa.repeat(pa.scalar(self.scope), len(keys)),
        }
        schema = arrow_schema(self.options)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _padded(numbers: pa.Array, digits: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), digits, "0")


def _within(batch: pa.RecordBatch, collections: Iterable[Namespace]) -> pa.Array:
    database, collection = batch.column("database"), batch.column("collection")
    chosen = pa.array(np.zeros(batch.num_rows, bool))
    for of in collections:
        here = pc.and_(pc.equal(database, of.db), pc.equal(collection, of.coll))
        chosen = pc.or_(chosen, pc.fill_null(here, False))
    return chosen
