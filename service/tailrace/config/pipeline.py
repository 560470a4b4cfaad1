"""The settings of the Spark job."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tailrace.config.fields import Count, Flag, Seconds, SecondsOrZero, Section, Text, like

ColumnType = Literal["string", "long", "double", "boolean", "timestamp", "decimal"]

VIEW_COLUMNS = frozenset(
    {
        *("key", "document_key", "document", "json", "operation", "scope", "ordinal", "_rescued"),
        *("cluster_time", "cluster_seconds", "cluster_increment", "is_current", "ended_by"),
        *("valid_from", "valid_from_position", "valid_to", "valid_to_position"),
    }
)
"""The columns that every view has; a typed column must not have one of these names."""


def column_path(path: str) -> str:
    """Returns the path if it can be written in SQL and is not a column of the view.

    Else raises ``ValueError``.
    """
    if not all(path.split(".")) or set(path) & set("\"'`\\") or not path.isprintable():
        raise ValueError("must be the path of a field, as in customer.name, without any quotes")
    if path.lower() in VIEW_COLUMNS:
        raise ValueError(f"the view has a column of that name; read the field as document:{path}")
    return path


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
    """The Spark job that turns the segments of a `parquet` handler into tables (`tailrace pipeline
    --config FILE`; the daemon does not read this section). `--lake` and `--tables` override it."""

    lake: Text | None = None
    """The lake: `path` of the `parquet` handler."""

    tables: Text | None = None
    """Where the tables are: a directory, or a URI of an object store."""

    master: Text | None = None
    """The master of the Spark cluster. Without it, Spark runs on this machine with all its
    cores."""

    driver_memory: Text = "2g"
    """The memory of Spark's driver process, which does all the work if there is no cluster. Raise
    it for large collections."""

    interval_seconds: Seconds = 10.0
    """How often the job looks for new segments."""

    batch_events: Count = 2_000_000
    """The approximate number of events in a batch. Lower it on a machine with little memory."""

    publish_ratio: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.1
    """`current` and `history` of a collection are published when this many changes wait, as a share
    of its documents. 0.1 keeps the cost of a change independent of the table's size; 0 publishes
    after every batch."""

    publish_seconds: Seconds = 300.0
    """The longest time that changes wait to be published."""

    publish_at_end: Flag = True
    """Whether a run publishes everything before it ends. Set it to `false` if you run `--once`
    every few minutes on large tables: each run would rewrite a large part of them. `publish_ratio`
    and `publish_seconds` then decide."""

    parallel_collections: Count = 2
    """How many collections are published concurrently."""

    history: Flag = True
    """Whether the table `history` is kept."""

    vacuum_hours: SecondsOrZero = 168.0
    """How long files of older versions of a table are kept. It must be longer than any query or
    batch takes."""

    segment_retention_hours: Seconds | None = None
    """How long segments are kept after they are in the tables. Without it they are kept forever, so
    that tables can be rebuilt."""

    spark: Mapping[str, str] = Field(default_factory=dict)
    """Further Spark settings, under Spark's own names."""

    columns: Mapping[
        Annotated[str, like(r"[^.]+\.(.|\n)+", "must be written database.collection")], Columns
    ] = Field(default_factory=dict)
    """Typed columns of the views. For each `database.collection`: the path of a field and its type
    (`string`, `long`, `double`, `boolean`, `timestamp`, `decimal`). Values that do not fit go to
    the column `_rescued`, and `quality` counts them from the next publication on."""
