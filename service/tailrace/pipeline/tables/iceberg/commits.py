"""Commits to an Iceberg table: each is one request to the catalog.

A commit is refused if the table has another snapshot meanwhile. pyiceberg itself would try again,
and a second pipeline's commit with the same segments would be accepted: the tables tell it not to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table import TableProperties, Transaction

from tailrace.errors import PipelineRefused
from tailrace.pipeline.table_schema import TableSchema
from tailrace.pipeline.tables.iceberg.data_files import files_of, manifest_file, plain
from tailrace.pipeline.tables.iceberg.failures import LOST_RACES, catalog_errors, fenced, unanswered
from tailrace.pipeline.tables.iceberg.schemas import (
    iceberg_schema,
    partition_spec,
    replace_fields,
)
from tailrace.pipeline.tables.iceberg.snapshots import NextSnapshot
from tailrace.pipeline.tables.port import DataFile, Table

if TYPE_CHECKING:
    from tailrace.pipeline.tables.iceberg.store import IcebergStore
    from tailrace.pipeline.tables.iceberg.version import IcebergVersion

LAKE = "tailrace.lake"
"""The table property with the lake that the table belongs to."""

_PROPERTIES = {
    TableProperties.COMMIT_NUM_RETRIES: "0",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "20",
}

_ATTEMPTS = 3
"""How often to try a commit if others have only compacted the table, or set properties."""

Stage = Callable[["IcebergVersion", Transaction], object]
"""Adds changes to a transaction that begins with a version."""


def committed(
    version: IcebergVersion,
    stage: Stage,
    may_follow: Callable[[IcebergVersion], bool],
    *,
    schema: TableSchema | None = None,
) -> IcebergVersion:
    """The table after a commit.

    ``may_follow``: whether the commit is still valid after another one that came first; it is then
    tried again. ``schema``: of the table, if there is none yet. Raises :class:`TablesFenced`, and
    :class:`PipelineRefused`.
    """
    where = version.table.location
    for attempt in range(_ATTEMPTS):
        try:
            with catalog_errors(f"{where}: nothing was committed"):
                transaction = _transaction(version, schema or version.table.schema)
                stage(version, transaction)
                made = transaction.table_metadata.current_snapshot_id
        except TableAlreadyExistsError as error:  # which a REST catalog tells before the commit
            raise fenced(where) from error
        try:
            stored = transaction.commit_transaction()
        except Exception as error:
            newest = _newest(version, error)
            if made != version.snapshot_id and newest.has_snapshot(made):
                return newest  # only the answer was lost
            if not isinstance(error, LOST_RACES):
                raise unanswered(where, error) from error
            if attempt == _ATTEMPTS - 1 or not version.exists or not may_follow(newest):
                raise fenced(where) from error
            version = newest
        else:
            # pyiceberg's table of a creation cannot be read.
            return version.followed_by(stored) if version.exists else _newest(version)
    raise AssertionError


def _newest(version: IcebergVersion, why: Exception | None = None) -> IcebergVersion:
    try:
        return version.latest()
    except PipelineRefused as error:
        raise unanswered(version.table.location, why or error) from error


def _transaction(version: IcebergVersion, schema: TableSchema) -> Transaction:
    if version.stored is not None:
        return copy(version.stored).transaction()  # which changes the table that it is of
    return _creation(version.store, version.table, schema)


def _creation(store: IcebergStore, table: Table, schema: TableSchema) -> Transaction:
    identifier = store.identifier(table.name)
    store.make_namespace(identifier[:-1])
    made = iceberg_schema(schema)
    properties = {**_PROPERTIES, LAKE: table.lake, "comment": table.description}
    # Spark's files have no ids of columns.
    properties[TableProperties.DEFAULT_NAME_MAPPING] = made.name_mapping.model_dump_json()
    return store.catalog.create_table_transaction(
        identifier,
        made,
        location=store.root(table),
        partition_spec=partition_spec(table, made),
        properties=properties,
    )


def add_snapshot(
    version: IcebergVersion,
    transaction: Transaction,
    summary: Mapping[str, str],
    adds: Iterable[DataFile],
    removes: Sequence[DataFile],
    *,
    compaction: bool = False,
) -> None:
    """Adds a snapshot to a transaction; ``removes`` are files of the version."""
    metadata = transaction.table_metadata
    root, schema, spec = metadata.location, metadata.schema(), metadata.spec()
    added = [manifest_file(each, root, schema, spec) for each in adds]
    paths = {each.path for each in removes}
    below = len(plain(root)) + 1
    found = files_of(version.stored, version.snapshot) if paths and version.stored else ()
    removed = [each for each in found if plain(each.file_path)[below:] in paths]
    NextSnapshot(transaction, summary, added, removed, compaction=compaction).commit()


def change_schema(
    version: IcebergVersion, transaction: Transaction, schema: TableSchema | None
) -> None:
    """Gives a table that is there another schema."""
    if schema is not None and version.exists:
        with transaction.update_schema() as update:
            replace_fields(update, version.table.schema, schema)
