"""One committed version of an Iceberg table.

The numbers of segments are in the summary of each snapshot, as JSON. The number of a version is
that of its snapshot: commits without one, of properties and of columns, are not counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Snapshot

from tailrace.errors import PipelineRefused
from tailrace.pipeline.table_schema import TableField, TableSchema
from tailrace.pipeline.tables.iceberg import maintenance
from tailrace.pipeline.tables.iceberg.commits import add_snapshot, change_schema, committed
from tailrace.pipeline.tables.iceberg.data_files import (
    data_file,
    files_of,
    plain,
    rows_of,
)
from tailrace.pipeline.tables.iceberg.failures import catalog_errors
from tailrace.pipeline.tables.iceberg.schemas import add_fields, table_schema
from tailrace.pipeline.tables.json_text import json_text
from tailrace.pipeline.tables.port import DataFile, RowSearch, Table
from tailrace.pipeline.tables.row_search import search

if TYPE_CHECKING:
    from tailrace.pipeline.tables.iceberg.store import IcebergStore

SEGMENTS = "tailrace.segments"
"""The last segment of each scope, in the summary of a snapshot. A table property has it, too: all
snapshots of a pipeline may expire where others add some."""

_METRICS = "tailrace.metrics"
"""The counts of a commit, in the summary of its snapshot."""

_APPLICATION = "tailrace.application."
"""Table properties with the numbers that commits recorded under other names."""


class IcebergVersion:
    """:class:`tailrace.pipeline.tables.port.TableVersion`."""

    def __init__(
        self,
        table: Table,
        store: IcebergStore,
        stored: IcebergTable | None = None,
        version: int | None = None,
    ) -> None:
        """Raises :class:`PipelineRefused` if there is no such version."""
        self.table, self.store, self.stored = table, store, stored
        self.snapshot: Snapshot | None = None
        if stored is None:
            return
        schema = stored.schema()
        self.snapshot = stored.current_snapshot()
        if version is not None and self.version != version:
            self.snapshot = self._numbered(stored, version)
            schema = stored.schemas()[self.snapshot.schema_id or 0]
        self.table = replace(table, schema=table_schema(schema, table.location))

    def _numbered(self, stored: IcebergTable, version: int) -> Snapshot:
        for snapshot in stored.metadata.snapshots:
            if _number(snapshot) == version:
                return snapshot
        raise PipelineRefused(f"{self.table.location}: its version {version} has expired")

    @property
    def exists(self) -> bool:
        return self.stored is not None

    @property
    def version(self) -> int:
        return _number(self.snapshot)

    @property
    def identity(self) -> str:
        return "" if self.stored is None else str(self.stored.metadata.table_uuid)

    @property
    def snapshot_id(self) -> int | None:
        return self.snapshot.snapshot_id if self.snapshot else None

    def has_snapshot(self, number: int | None) -> bool:
        stored = self.stored
        return number is not None and stored is not None and bool(stored.snapshot_by_id(number))

    @cached_property
    def files(self) -> list[DataFile]:
        stored = self.stored
        if stored is None:
            return []
        root, schema, specs = plain(stored.location()), stored.schema(), stored.specs()
        with catalog_errors(f"{self.table.location}: cannot be read as an Iceberg table"):
            found = files_of(stored, self.snapshot)
            return [data_file(each, root, schema, specs[each.spec_id]) for each in found]

    def segment(self, scope: str) -> int:
        return self.segments.get(scope, -1)

    @cached_property
    def segments(self) -> Mapping[str, int]:
        recorded = (each[SEGMENTS] for each in map(_summary, self._ancestors()) if SEGMENTS in each)
        segments: dict[str, int] = json.loads(next(recorded, self._text(SEGMENTS) or "{}"))
        return segments

    def application(self, name: str) -> int:
        return int(self._text(_APPLICATION + name) or -1)

    def property(self, name: str) -> Mapping[str, Any]:
        properties: dict[str, Any] = json.loads(self._text(name) or "{}")
        return properties

    def _text(self, name: str) -> str | None:
        return None if self.stored is None else self.stored.properties.get(name)

    def _ancestors(self) -> Iterator[Snapshot]:
        """The snapshot and those before it, newest first."""
        snapshot = self.snapshot
        while snapshot is not None and self.stored is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.stored.snapshot_by_id(parent)

    def metrics_since(self, version: int) -> list[Mapping[str, Any]]:
        newer = [_metrics(each) for each in self._ancestors() if _number(each) > version]
        return newer[::-1]

    def recent_metrics(self, commits: int) -> list[tuple[datetime, Mapping[str, Any]]]:
        recent = zip(range(commits), self._ancestors(), strict=False)
        return [
            (datetime.fromtimestamp(each.timestamp_ms / 1000, UTC), _metrics(each))
            for _, each in recent
        ]

    def rows(self, *columns: str) -> list[Mapping[str, Any]]:
        if self.stored is None or self.snapshot is None:
            return []
        with catalog_errors(f"{self.table.location}: cannot be read as an Iceberg table"):
            # A snapshot is read without the columns that were added after it.
            earlier = None if self.snapshot == self.stored.current_snapshot() else self.snapshot_id
            scan = self.stored.scan(selected_fields=columns, snapshot_id=earlier)
            rows: list[Mapping[str, Any]] = scan.to_arrow().to_pylist()
        return rows

    def row_with(self, name: str, value: str, *columns: str, seconds: float) -> RowSearch:
        if self.stored is None or not self.files:
            return RowSearch(None, 0, 0)
        with catalog_errors(f"{self.table.location}: cannot be read as an Iceberg table"):
            found = rows_of(self.table, self.files)
            return search(list(found.get_fragments()), name, value, columns, seconds)

    def latest(self) -> IcebergVersion:
        stored = self.store.load(self.table).stored
        return self.store.absent(self.table) if stored is None else self.followed_by(stored)

    def followed_by(self, stored: IcebergTable) -> IcebergVersion:
        """The table as it was read or committed after this version."""
        if self.stored and stored.metadata_location == self.stored.metadata_location:
            return self
        newest = IcebergVersion(self.table, self.store, stored)
        if newest.snapshot == self.snapshot and "files" in self.__dict__:
            newest.__dict__["files"] = self.files  # a commit of properties
        return newest

    def set_properties(self, values: Mapping[str, Mapping[str, Any]]) -> IcebergVersion:
        changed = {name: value for name, value in values.items() if self.property(name) != value}
        if self.stored is None or not changed:
            return self
        texts = {name: json_text(value) for name, value in changed.items()}
        return committed(self, lambda _, begun: begun.set_properties(texts), self._is_same_table)

    def add_columns(self, fields: Sequence[TableField]) -> IcebergVersion:
        if self.stored is None or not fields:
            return self

        def stage(version: IcebergVersion, transaction: Transaction) -> None:
            with transaction.update_schema() as update:
                add_fields(update, fields)

        return committed(self, stage, lambda newest: newest.table.schema == self.table.schema)

    def commit(
        self,
        adds: Sequence[DataFile] = (),
        removes: Sequence[DataFile] = (),
        *,
        segments: Mapping[str, int] | None = None,
        applications: Mapping[str, int] | None = None,
        metrics: Mapping[str, Any] | None = None,
        schema: TableSchema | None = None,
    ) -> IcebergVersion:
        through = json_text({**self.segments, **(segments or {})})
        summary = {SEGMENTS: through, _METRICS: json_text(metrics or {})}
        properties = {_APPLICATION + name: str(at) for name, at in (applications or {}).items()}

        def stage(version: IcebergVersion, transaction: Transaction) -> None:
            change_schema(version, transaction, schema)
            gone = removes if schema is None else version.files
            add_snapshot(version, transaction, summary, adds, gone)
            transaction.set_properties({SEGMENTS: through, **properties})

        def may_follow(newest: IcebergVersion) -> bool:
            paths = {each.path for each in newest.files}
            return (
                schema is None
                and self._is_same_table(newest)
                and newest.segments == self.segments
                and newest.table.schema == self.table.schema
                and all(each.path in paths for each in removes)
            )

        return committed(self, stage, may_follow, schema=schema)

    def _is_same_table(self, newest: IcebergVersion) -> bool:
        return newest.identity == self.identity

    def compact(self, target_bytes: int) -> int:
        return maintenance.compact(self, target_bytes)

    def limit_log(self, commits: int, hours: int) -> bool:
        return maintenance.limit_snapshots(self, commits, hours)

    def vacuum(self, hours: float) -> int:
        return maintenance.vacuum(self, hours)


def _number(snapshot: Snapshot | None) -> int:
    """Snapshots are numbered from 1 on."""
    return -1 if snapshot is None else (snapshot.sequence_number or 0) - 1


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def _metrics(snapshot: Snapshot) -> Mapping[str, Any]:
    metrics: dict[str, Any] = json.loads(_summary(snapshot).get(_METRICS, "{}"))
    return metrics
