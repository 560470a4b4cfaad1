"""The view of all events, in the order of each scope."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import bson
import pyarrow as pa
from bson import json_util
from pyarrow import compute as pc

from tailrace.lake.segment import COLUMNS
from tailrace.spark import values
from tailrace.spark.options import Options, arrow_schema
from tailrace.spark.planning import Segments
from tailrace.spark.reading import Rows, of_columns, rows_of

_DOCUMENTS = {
    "document_key": "document_key",
    "document": "full_document",
    "document_before": "full_document_before_change",
    "update_description": "update_description",
    "extra": "extra",
}
_MICROSECONDS = 1_000_000


def batches(segments: Segments, options: Options) -> Iterator[pa.RecordBatch]:
    """Each event as a row; a gap is a row before the events of its segment."""
    schema = arrow_schema(options)
    names = [name for name in COLUMNS if name not in ("scope", "segment")]
    for number in segments.numbers:
        if (gap := segments.gaps.get(number)) is not None:
            yield of_columns(_of_gap(segments.scope, number, gap, schema, options), schema)
        for rows in rows_of(segments, options, number, names):
            if (batch := _chosen(rows.batch, options)).num_rows:
                yield _shown(Rows(rows.where, number, rows.documents, batch), segments, options)


def _chosen(batch: pa.RecordBatch, options: Options) -> pa.RecordBatch:
    """The events of the chosen collections, and those that may concern them."""
    if not options.collections:
        return batch
    database, collection = batch.column("database"), batch.column("collection")
    chosen = pc.or_(pc.is_null(database), pc.is_null(collection))
    for of in options.collections:
        here = pc.and_(pc.equal(database, of.db), pc.equal(collection, of.coll))
        chosen = pc.or_(chosen, pc.fill_null(here, False))
    renamed = pc.equal(batch.column("operation"), "rename")
    return batch.filter(pc.or_(chosen, renamed))


def _shown(rows: Rows, segments: Segments, options: Options) -> pa.RecordBatch:
    batch, schema = rows.batch, arrow_schema(options)
    count = batch.num_rows
    columns: dict[str, Any] = {
        name: batch.column(name) for name in schema.names if name in batch.schema.names
    }
    columns["scope"] = pa.repeat(pa.scalar(segments.scope), count)
    columns["segment"] = pa.repeat(pa.scalar(rows.segment, pa.int64()), count)
    columns["cluster_time"] = time_of(batch)
    columns["wall_time"] = batch.column("wall_time").cast(pa.timestamp("us", "UTC"))
    with rows.naming_faults():
        columns["key"] = values.id_texts(batch.column("document_key"))
        for name, landed in _DOCUMENTS.items():
            columns[name] = values.documents(
                batch.column(landed), rows.documents, options.documents
            )
    return of_columns(columns, schema)


def time_of(batch: pa.RecordBatch) -> pa.Array:
    """The cluster times, in whole seconds."""
    seconds = pc.multiply(batch.column("cluster_seconds"), _MICROSECONDS)
    return seconds.cast(pa.timestamp("us", "UTC"))


def _of_gap(
    scope: str, number: int, gap: Mapping[str, Any], schema: pa.Schema, options: Options
) -> dict[str, pa.Array]:
    columns = {field.name: pa.nulls(1, field.type) for field in schema}
    raw = bson.encode(json_util.loads(json.dumps(gap)))
    columns |= {
        "scope": pa.array([scope]),
        "segment": pa.array([number], pa.int64()),
        "operation": pa.array(["gap"]),
        "extra": values.converted([raw], options.documents),
    }
    return columns
