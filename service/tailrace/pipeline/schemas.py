"""The columns of every table."""

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.lake.segment import COLUMNS, Documents, Kind

DOCUMENT_OPERATIONS = frozenset({"insert", "replace", "update", "delete"})
"""The operations that change one document."""

TEXTS = tuple(name for name, kind in COLUMNS.items() if kind is Kind.DOCUMENT)
"""The columns of a segment that hold documents."""

_TEXT, _NUMBER, _TIME, _FLAG = StringType(), LongType(), TimestampType(), BooleanType()


def _columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind, True) for name, kind in types.items()])


def segment_schema(documents: Documents) -> StructType:
    """A segment's columns as Spark reads them."""
    kinds = {
        Kind.INT64: _NUMBER,
        Kind.STRING: _TEXT,
        Kind.BINARY: BinaryType(),
        Kind.MILLISECONDS: _TIME,
        Kind.DOCUMENT: BinaryType() if documents is Documents.BSON else _TEXT,
    }
    return _columns(**{name: kinds[kind] for name, kind in COLUMNS.items()})


CHANGES = _columns(
    scope=_TEXT,
    segment=_NUMBER,
    ordinal=_NUMBER,
    cluster_time=_TIME,
    cluster_seconds=_NUMBER,
    cluster_increment=_NUMBER,
    position=_NUMBER,
    wall_time=_TIME,
    operation=_TEXT,
    database=_TEXT,
    collection=_TEXT,
    key=_TEXT,
    document_key=_TEXT,
    image=_TEXT,
    full_document=_TEXT,
    full_document_before_change=_TEXT,
    update_description=_TEXT,
    extra=_TEXT,
    token=_TEXT,
    table=_TEXT,
)
"""The log: every event, every field; documents as canonical Extended JSON."""

CURRENT = _columns(
    key=_TEXT,
    document_key=_TEXT,
    document=_TEXT,
    operation=_TEXT,
    cluster_time=_TIME,
    cluster_seconds=_NUMBER,
    cluster_increment=_NUMBER,
    scope=_TEXT,
    ordinal=_NUMBER,
    valid_from_position=_NUMBER,
)
"""One row per live document: what it is, and the change that made it so.

``valid_from_position`` is the place in order of that change, or of the rename that brought the
document here (:mod:`tailrace.pipeline.cluster_order`).
"""

HISTORY = StructType(
    [
        *CURRENT,
        *_columns(
            valid_from=_TIME,
            valid_to=_TIME,
            valid_to_position=_NUMBER,
            ended_by=_TEXT,
            is_current=_FLAG,
        ),
    ]
)
"""One row per version of a document: since when, until when, and what ended it."""

QUALITY = _columns(
    stage=_TEXT,
    scope=_TEXT,
    first_segment=_NUMBER,
    last_segment=_NUMBER,
    database=_TEXT,
    collection=_TEXT,
    events=_NUMBER,
    inserts=_NUMBER,
    updates=_NUMBER,
    replaces=_NUMBER,
    deletes=_NUMBER,
    others=_NUMBER,
    distinct_keys=_NUMBER,
    null_documents=_NUMBER,
    updates_without_base=_NUMBER,
    duplicates_dropped=_NUMBER,
    lag_seconds=DoubleType(),
    gap=_TEXT,
    recorded_at=_TIME,
    field=_TEXT,
    rescued=_NUMBER,
    set_aside=_NUMBER,
    complete=_FLAG,
    since=_TIME,
    reason=_TEXT,
)
"""What a batch held, by collection; docs/tables.md explains the stages."""
