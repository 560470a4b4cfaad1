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
from tailrace.spark.reading import RowBatch, rows_of, timestamps

_DOCUMENTS = {
    "document_key": "document_key",
    "document": "full_document",
    "document_before": "full_document_before_change",
    "update_description": "update_description",
    "extra": "extra",
}


def batches(segments: Segments, options: Options) -> Iterator[pa.RecordBatch]:
    """Each event as a row; a gap is a row before the events of its segment."""
    names = [name for name in COLUMNS if name not in ("scope", "segment")]
    for number in segments.numbers:
        if (gap := segments.gaps.get(number)) is not None:
            yield _of_gap(segments.scope, number, gap, options)
        for rows in rows_of(segments, options, number, names):
            if (batch := _chosen(rows.batch, options)).num_rows:
                yield _shown(RowBatch(rows.where, number, batch), segments, options)


def _chosen(batch: pa.RecordBatch, options: Options) -> pa.RecordBatch:
    """The events of the chosen collections, and those that may concern them; from a time on."""
    if options.since is not None:
        batch = batch.filter(pc.greater_equal(batch.column("cluster_seconds"), options.since))
    if not options.collections:
        return batch
    database, collection = batch.column("database"), batch.column("collection")
    chosen = pc.or_(pc.is_null(database), pc.is_null(collection))
    for of in options.collections:
        here = pc.and_(pc.equal(database, of.db), pc.equal(collection, of.coll))
        chosen = pc.or_(chosen, pc.fill_null(here, False))
    renamed = pc.equal(batch.column("operation"), "rename")
    return batch.filter(pc.or_(chosen, renamed))


def _shown(rows: RowBatch, segments: Segments, options: Options) -> pa.RecordBatch:
    batch, schema = rows.batch, arrow_schema(options)
    count = batch.num_rows
    columns: dict[str, Any] = {
        name: batch.column(name) for name in schema.names if name in batch.schema.names
    }
    columns["scope"] = pa.repeat(pa.scalar(segments.scope), count)
    columns["segment"] = pa.repeat(pa.scalar(rows.segment, pa.int64()), count)
    columns["cluster_time"] = timestamps(batch.column("cluster_seconds"))
    columns["wall_time"] = batch.column("wall_time").cast(pa.timestamp("us", "UTC"))
    with rows.naming_faults():
        columns["key"] = values.id_texts(batch.column("document_key"))
        for name, landed in _DOCUMENTS.items():
            columns[name] = values.documents(
                batch.column(landed), rows.documents, options.documents
            )
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _of_gap(scope: str, number: int, gap: Mapping[str, Any], options: Options) -> pa.RecordBatch:
    schema = arrow_schema(options)
    raw = bson.encode(json_util.loads(json.dumps(gap)))
    columns = {
        "scope": pa.array([scope]),
        "segment": pa.array([number], pa.int64()),
        "operation": pa.array(["gap"]),
        "extra": values.converted([raw], options.documents),
    }
    arrays = [columns.get(field.name, pa.nulls(1, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
