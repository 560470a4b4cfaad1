"""What the pipeline can be told, beside its command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tailrace.config.fields import (
    Count,
    Flag,
    Seconds,
    SecondsOrZero,
    Section,
    Text,
)

ColumnType = Literal["string", "long", "double", "boolean", "timestamp", "decimal"]

VIEW_COLUMNS = frozenset(
    {
        *("key", "document_key", "document", "json", "operation", "scope", "ordinal", "_rescued"),
        *("cluster_time", "cluster_seconds", "cluster_increment", "is_current", "ended_by"),
        *("valid_from", "valid_from_position", "valid_to", "valid_to_position"),
    }
)
"""What a view has of its own."""


def column_path(path: str) -> str:
    """The path of a field that a view can have as a column.

    Raises ``ValueError`` for one that cannot be written in SQL, or that a view has already.
    """
    if not all(path.split(".")) or set(path) & set("\"'`\\") or not path.isprintable():
        raise ValueError("must be the path of a field, as in customer.name, without any quotes")
    if path.lower() in VIEW_COLUMNS:
        raise ValueError(f"the view has a column of that name; read the field as document:{path}")
    return path


def _collection(name: str) -> str:
    database, _, collection = name.partition(".")
    if not (database and collection):
        raise ValueError("must be written database.collection")
    return name


def _distinct(columns: Mapping[str, ColumnType]) -> Mapping[str, ColumnType]:
    seen: dict[str, str] = {}
    for path in columns:
        before = seen.setdefault(path.lower(), path)
        if before != path:
            raise ValueError(f"{before!r} and {path!r} are one column to Spark: keep one of them")
    return columns


Columns = Annotated[
    Mapping[Annotated[str, AfterValidator(column_path)], ColumnType], AfterValidator(_distinct)
]


class PipelineSettings(Section):
    """The Spark job that makes tables of what the parquet handler has landed. Its command line
    replaces what is said here."""

    lake: Text | None = None
    """Where the segments are: the path of the parquet handler."""

    tables: Text | None = None
    """Where the tables are made: a directory, or a URI of an object store."""

    master: Text | None = None
    """Spark's master. Default: this machine, all of its cores."""

    driver_memory: Text = "2g"
    """Memory of the Java process that directs the work, and does it where there is no cluster."""

    interval_seconds: Seconds = 10.0
    """How long to wait before looking for new segments again."""

    batch_events: Count = 2_000_000
    """Events of a batch, about. 2,000,000 make a start's cost small and fit a small machine."""

    publish_ratio: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.1
    """While the pipeline runs on, `current` and `history` of a collection are published once so
    many changes wait, as a part of its documents. 0.1 keeps the cost of a change the same for
    tables of any size; 0 publishes after every batch."""

    publish_seconds: Seconds = 300.0
    """The longest that changes wait for that."""

    publish_at_end: Flag = True
    """Whether a run ends with everything published, and begins with what a run before has left.
    false leaves that to `publish_ratio` and `publish_seconds`: for a `--once` every few minutes on
    large tables, which would write a large part of them anew each time."""

    parallel_collections: Count = 2
    """Collections that are published at once."""

    history: Flag = True
    """Whether `history` is kept."""

    vacuum_hours: SecondsOrZero = 168.0
    """How long files are kept that the newest version of a table does not need: for readers of
    older ones, and for what a running batch has written. 168 is Delta's own week."""

    segment_retention_hours: Seconds | None = None
    """How long segments are kept that are in the tables. Default: for ever, so that all tables
    can be rebuilt."""

    spark: Mapping[str, str] = Field(default_factory=dict)
    """Further settings of Spark, by its own names."""

    columns: Mapping[Annotated[str, AfterValidator(_collection)], Columns] = Field(
        default_factory=dict
    )
    """Typed columns of the views, by `database.collection`: the path of a field and its type
    (string, long, double, boolean, timestamp, decimal). The tables hold the declaration, so their
    readers need not repeat it. What does not fit goes to `_rescued`, and is counted in `quality`
    from the next publication on."""
