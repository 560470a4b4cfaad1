"""One committed version of a Delta table, and the commit that follows it.

The numbers of segments are Delta's application transactions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, Schema, WriterProperties, transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from tailrace.errors import PipelineRefused, describe
from tailrace.pipeline.table_schema import TableField, TableSchema
from tailrace.pipeline.tables.delta.actions import (
    add_action,
    data_file,
    name_of,
    schema_of,
)
from tailrace.pipeline.tables.delta.failures import commit_errors, read_errors
from tailrace.pipeline.tables.json_text import json_text
from tailrace.pipeline.tables.port import DataFile, RowSearch, Table, TableVersion
from tailrace.pipeline.tables.row_search import search

_METRICS = "tailrace"
"""The key of a commit's metadata under which its counts are stored."""

_NO_BOUNDS = {"delta.dataSkippingNumIndexedCols": "0"}
"""For tables without bounds. Where a file has bounds of some columns, deltalake 1.6.6 gives Arrow
``NULL`` as bounds of the others, and where a count of nulls lacks, it says that there are none: a
condition on such a column then finds no row of Arrow's data set (in DuckDB, say)."""

_ATTEMPTS = 2
"""How often to try a compaction if another writer commits first."""


class DeltaVersion:
    """:class:`tailrace.pipeline.tables.port.TableVersion`."""

    def __init__(self, table: Table, delta: DeltaTable | None) -> None:
        self.table = table if delta is None else replace(table, schema=schema_of(delta))
        self._delta = delta
        self.version = -1 if delta is None else delta.version()

    @property
    def exists(self) -> bool:
        return self._delta is not None

    @property
    def identity(self) -> str:
        return "" if self._delta is None else str(self._delta.metadata().id)

    @cached_property
    def files(self) -> list[DataFile]:
        if self._delta is None:
            return []
        actions = pa.RecordBatchReader.from_stream(self._delta.get_add_actions(flatten=True))
        found = actions.read_all()
        # No file is chosen by times, for which pyarrow imports pandas: that takes half a second.
        names = [field.name for field in found.schema if not pa.types.is_timestamp(field.type)]
        return [data_file(row) for row in found.select(names).to_pylist()]

    def segment(self, scope: str) -> int:
        return self.application(f"tailrace:{self.table.lake}:{scope}")

    def application(self, name: str) -> int:
        found = self._delta.transaction_version(name) if self._delta else None
        return -1 if found is None else found

    def property(self, name: str) -> Mapping[str, Any]:
        found = self._delta.metadata().configuration.get(name) if self._delta else None
        properties: dict[str, Any] = json.loads(found or "{}")
        return properties

    def metrics_since(self, version: int) -> list[Mapping[str, Any]]:
        if self.version <= version:
            return []
        return [counted for _, counted in reversed(self.recent_metrics(self.version - version))]

    def recent_metrics(self, commits: int) -> list[tuple[datetime, Mapping[str, Any]]]:
        found = self._delta.history(commits) if self._delta else []
        return [
            (
                datetime.fromtimestamp(each["timestamp"] / 1000, UTC),
                json.loads(each.get(_METRICS) or "{}"),
            )
            for each in found
        ]

    def rows(self, *columns: str) -> list[Mapping[str, Any]]:
        if self._delta is None:
            return []
        with read_errors(self.table.location):
            found = self._delta.to_pyarrow_table(columns=[*columns])
        rows: list[Mapping[str, Any]] = found.to_pylist()
        return rows

    def row_with(self, name: str, value: str, *columns: str, seconds: float) -> RowSearch:
        if self._delta is None:
            return RowSearch(None, 0, 0)
        with read_errors(self.table.location):
            fragments = list(self._delta.to_pyarrow_dataset().get_fragments())
            return search(fragments, name, value, columns, seconds)

    def set_properties(self, values: Mapping[str, Mapping[str, Any]]) -> TableVersion:
        changed = {name: value for name, value in values.items() if self.property(name) != value}
        if self._delta is None or not changed:
            return self
        texts = {name: json_text(value) for name, value in changed.items()}
        with commit_errors(self.table.location):
            self._delta.alter.set_table_properties(texts, raise_if_not_exists=False)
        return DeltaVersion(self.table, self._delta)  # which is the new version

    def add_columns(self, fields: Sequence[TableField]) -> TableVersion:
        if self._delta is None or not fields:
            return self
        added = Schema.from_json(json_text(TableSchema.of(fields).json())).fields
        with commit_errors(self.table.location):
            self._delta.alter.add_columns(added)
        return self.latest()

    def latest(self) -> TableVersion:
        if self._delta is None or not (self.table.location / "_delta_log").exists():
            return self.table.load()
        with read_errors(self.table.location):
            self._delta.update_incremental()
        if self._delta.version() == self.version:
            return self
        return DeltaVersion(self.table, self._delta)

    def commit(
        self,
        adds: Sequence[DataFile] = (),
        removes: Sequence[DataFile] = (),
        *,
        segments: Mapping[str, int] | None = None,
        applications: Mapping[str, int] | None = None,
        metrics: Mapping[str, Any] | None = None,
        schema: TableSchema | None = None,
    ) -> TableVersion:
        table = self.table if schema is None else replace(self.table, schema=schema)
        scopes = segments or {}
        versions = {f"tailrace:{table.lake}:{scope}": at for scope, at in scopes.items()}
        versions.update(applications or {})
        properties = transaction.CommitProperties(
            app_transactions=[
                transaction.Transaction(app, version) for app, version in versions.items()
            ],
            custom_metadata={_METRICS: json_text(metrics or {})},
            # A retry of delta-rs would not notice that a compaction has removed the same files, and
            # their rows would be in the table twice.
            max_commit_retries=0 if removes or schema is not None else None,
        )
        now = int(time.time() * 1000)
        stored = Schema.from_json(json_text(table.schema.json()))
        added = [add_action(each, now) for each in adds]
        with commit_errors(self.table.location):
            if self._delta is None:
                table.location.make()
                transaction.create_table_with_add_actions(
                    table.location.uri,
                    stored,
                    added,
                    mode="error",
                    partition_by=list(table.partition_by),
                    name=name_of(table.lake),
                    description=table.description,
                    configuration=None if table.bounded else _NO_BOUNDS,
                    storage_options={**table.location.options},
                    commit_properties=properties,
                )
                return table.load()
            gone = [
                transaction.RemoveAction(each.path, True, now, each.size, dict(each.partition))
                for each in ([] if schema is not None else removes)
            ]
            self._delta.create_write_transaction(
                [*added, *gone],
                "append" if schema is None else "overwrite",  # which removes every file by itself
                stored,
                list(table.partition_by),
                commit_properties=properties,
            )
        return self.latest()

    def compact(self, target_bytes: int) -> int:
        if self._delta is None:
            return 0
        # As Spark writes files: zstd, and bounds of all columns or of none.
        statistics = ColumnProperties(statistics_enabled="CHUNK" if self.table.bounded else "NONE")
        properties = WriterProperties(
            compression="ZSTD", compression_level=1, default_column_properties=statistics
        )
        optimize = self._delta.optimize
        for _ in range(_ATTEMPTS):
            try:
                done = optimize.compact(target_size=target_bytes, writer_properties=properties)
                return int(done["numFilesRemoved"])
            except CommitFailedError:  # another writer came first: try again, now or next time
                self._delta.update_incremental()
            except (DeltaError, OSError) as error:
                raise PipelineRefused(
                    f"{self.table.location}: compaction failed: {describe(error)}"
                ) from error
        return 0

    def limit_log(self, commits: int, hours: int) -> bool:
        if self._delta is None or len((self.table.location / "_delta_log").names()) <= commits:
            return False
        properties = {"delta.logRetentionDuration": f"interval {hours} hours"}
        if self._delta.metadata().configuration.items() >= properties.items():
            return True
        with commit_errors(self.table.location):
            self._delta.alter.set_table_properties(properties)
            self._delta.create_checkpoint()
            self._delta.cleanup_metadata()
        return True

    def vacuum(self, hours: float) -> int:
        if self._delta is None:
            return 0
        try:
            removed = self._delta.vacuum(
                retention_hours=max(1, round(hours)) if hours else 0,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
            )
        except (DeltaError, CommitFailedError, OSError) as error:
            where = self.table.location
            raise PipelineRefused(f"{where}: vacuum failed: {describe(error)}") from error
        return len(removed)
