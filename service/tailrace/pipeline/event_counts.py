"""Counts the events of the log by collection, in this process: Spark would need a job for them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc

from tailrace.pipeline import files
from tailrace.pipeline.schemas import DOCUMENT_OPERATIONS, NO_TABLE
from tailrace.pipeline.tables import DataFile, TableVersion

_READ = ("segment", "operation", "database", "collection", "key", "image", "cluster_seconds")

_OPERATIONS = {"inserts": "insert", "updates": "update", "replaces": "replace", "deletes": "delete"}

_ONE_ROW = {"first_segment": min, "last_segment": max, "last": max}
"""How counts of a collection that is in two parts are merged; all others are added."""


def counts_of(
    log: TableVersion, news: Sequence[DataFile], through: Mapping[str, int]
) -> list[dict[str, Any]]:
    """One row for each collection in each scope, of the events in these files after ``through``.

    ``last`` is the time of the last event, in seconds since 1970. A few files are in memory at
    once, and the keys of one table.
    """
    parts: dict[tuple[str, str], list[DataFile]] = {}
    for file in news:
        part = file.partition["scope"] or "", file.partition["table"] or ""
        parts.setdefault(part, []).append(file)
    counts: dict[tuple[str, str | None, str | None], dict[str, Any]] = {}
    for (scope, table), some in parts.items():
        is_new = pc.field("segment") > through.get(scope, -1)
        keys: list[pa.Array] = []
        collection = scope, None, None
        for _, rows in files.read_here(log.table, some, _READ):
            events = rows.filter(is_new)
            for row in _counted(events, table):
                collection = scope, row["database"], row["collection"]
                before = counts.get(collection)
                counts[collection] = {"scope": scope, **(_merged(before, row) if before else row)}
            keys += events["key"].chunks
        if table != NO_TABLE and collection in counts:  # all events are of this collection
            distinct = pc.count_distinct(pa.chunked_array(keys, pa.string())).as_py()
            counts[collection]["distinct_keys"] += distinct
    return list(counts.values())


def _counted(events: pa.Table, table: str) -> Iterator[dict[str, Any]]:
    operation = events["operation"].cast(pa.string())
    documents = pc.is_in(operation, pa.array(sorted(DOCUMENT_OPERATIONS)))
    tests = {
        **{name: pc.equal(operation, of) for name, of in _OPERATIONS.items()},
        "others": pc.is_null(events["key"]),
        "null_documents": pc.equal(events["image"].cast(pa.string()), "null"),
        "set_aside": pc.and_(documents, table == NO_TABLE),
    }
    for name, test in tests.items():
        events = events.append_column(name, pc.fill_null(test, False).cast(pa.int64()))
    for name in ("database", "collection"):
        at = events.schema.get_field_index(name)
        events = events.set_column(at, name, events[name].cast(pa.string()))
    grouped = events.group_by(["database", "collection"]).aggregate(
        [
            ("segment", "min"),
            ("segment", "max"),
            ("cluster_seconds", "max"),
            *([("key", "count_distinct")] if table == NO_TABLE else []),
            ([], "count_all"),
            *((name, "sum") for name in tests),
        ]
    )
    for row in grouped.to_pylist():
        yield {
            "database": row["database"],
            "collection": row["collection"],
            "first_segment": row["segment_min"],
            "last_segment": row["segment_max"],
            "last": row["cluster_seconds_max"],
            "distinct_keys": row.get("key_count_distinct", 0),
            "events": row["count_all"],
            **{name: row[f"{name}_sum"] for name in tests},
        }


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(other)
    for name, value in one.items():
        if name in _ONE_ROW:
            values = [each for each in (value, other[name]) if each is not None]
            merged[name] = _ONE_ROW[name](values) if values else None
        elif isinstance(value, int):
            merged[name] = value + other[name]
    return merged
