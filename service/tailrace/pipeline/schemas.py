"""The names and the columns of the tables."""

import hashlib
import re
from functools import lru_cache

from tailrace.lake.segment import COLUMNS, LogicalType
from tailrace.pipeline.table_schema import StoredType, TableField, TableSchema

NO_TABLE = "_"
"""The ``table`` of events in the log that change no single document: drop, rename, ..."""

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_LONGEST = 200

DOCUMENT_OPERATIONS = frozenset({"insert", "replace", "update", "delete", "read"})
"""The operations on one document. ``read`` is a row of a snapshot."""

TEXTS = tuple(name for name, kind in COLUMNS.items() if kind is LogicalType.DOCUMENT)
"""The columns of a segment that hold documents."""


_TEXT, _NUMBER = StoredType.STRING, StoredType.LONG
_TIME, _FLAG = StoredType.TIMESTAMP, StoredType.BOOLEAN


def _columns(**types: str) -> TableSchema:
    return TableSchema.of(TableField(name, kind) for name, kind in types.items())


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
    key_after=_TEXT,
    image=_TEXT,
    full_document=_TEXT,
    full_document_before_change=_TEXT,
    update_description=_TEXT,
    extra=_TEXT,
    token=_TEXT,
    table=_TEXT,
)
"""The log: every event, every field; documents as canonical Extended JSON. ``key_after``: in a
sharded collection the document key after the event, which an update changes."""

_DERIVED = ("cluster_time", "position")
DECODED = TableSchema.of(field for field in CHANGES if field.name not in _DERIVED)
"""The columns of the log that are not computed from others."""

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
    _rescued=_TEXT,
)
"""One row per live document, with its last change. ``valid_from_position`` is the position of the
change, or of the rename that brought the document into this table. Typed columns follow
(:mod:`tailrace.pipeline.typed_columns`); ``_rescued`` has the values that do not fit them."""

HISTORY = TableSchema.of(
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
"""One row per version of a document: when it began, when it ended, and what ended it."""

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
    lag_seconds=StoredType.DOUBLE,
    gap=_TEXT,
    recorded_at=_TIME,
    field=_TEXT,
    rescued=_NUMBER,
    set_aside=_NUMBER,
    complete=_FLAG,
    since=_TIME,
    reason=_TEXT,
)
"""Counts by batch and collection; docs/tables.md explains the stages."""


@lru_cache(4096)
def table_name(database: str, collection: str) -> str:
    """The directory of a collection's table: ``database.collection`` if that is a safe name.

    Every byte of UTF-8 that is not a letter, a digit, ``-``, ``_`` or ``.`` becomes ``!`` and two
    hexadecimal digits; so does a leading ``_`` or ``.``, which would mark a hidden file. A name
    that is too long for a directory is shortened and ends in a digest.
    """
    text = _safe(f"{database}.{collection}")
    if len(text) > _LONGEST:
        digest = hashlib.sha256(f"{database}.{collection}".encode()).hexdigest()[:16]
        return f"{text[: _LONGEST - 18]}!!{digest}"
    return text


def table_of(collection: str) -> str:
    """:func:`table_name` of ``database.collection``."""
    database, _, name = collection.partition(".")
    return table_name(database, name)


def collection_of(table: str) -> str:
    """The ``database.collection`` of a table's directory; a name that was shortened stays so."""
    if "!!" in table:
        return table
    raw = re.sub(rb"!([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), table.encode())
    return raw.decode("utf-8", "surrogatepass")


def of_database(table: str, database: str) -> bool:
    """Whether a table belongs to the database, whose name has no dot."""
    return table.startswith(_safe(f"{database}."))


def _safe(text: str) -> str:
    first = text[:1] in ("_", ".")
    return "".join(
        char
        if char in _SAFE and not (first and at == 0)
        else "".join(f"!{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        for at, char in enumerate(text)
    )
