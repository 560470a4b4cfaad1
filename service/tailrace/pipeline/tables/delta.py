"""Delta tables: reads what is committed, and commits the files that Spark wrote.

The numbers of segments are Delta's application transactions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, DeltaTable, Schema, WriterProperties, transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyspark.sql.types import StructField, StructType

from tailrace.errors import PipelineRefused, TablesFenced, describe
from tailrace.pipeline.location import Location
from tailrace.pipeline.tables.port import DataFile, RowSearch, Table, TableVersion

_METRICS = "tailrace"
"""The key of a commit's metadata under which its counts are stored."""

_NAME = "tailrace:"

_NO_BOUNDS = {"delta.dataSkippingNumIndexedCols": "0"}
"""For tables without bounds. Where a file has bounds of some columns, deltalake 1.6.6 gives Arrow
``NULL`` as bounds of the others, and where a count of nulls lacks, it says that there are none: a
condition on such a column then finds no row of Arrow's data set (in DuckDB, say)."""

_ATTEMPTS = 2
"""How often to try a compaction if another writer commits first."""


@dataclass(frozen=True, slots=True)
class DeltaStore:
    """:class:`tailrace.pipeline.tables.port.TableStore`: Delta tables in a directory."""

    location: Location

    def load(self, table: Table, version: int | None = None) -> TableVersion:
        location = table.location
        delta = _open(location, version)
        if delta is None:
            return self.absent(table)
        lake = _lake_of(delta)
        if lake == table.lake:
            return DeltaVersion(table, delta)
        whose = f"belongs to the lake {lake}, not to {table.lake}"
        if lake is None:
            whose = "is not a table of this pipeline"
        raise PipelineRefused(f"{location}: {whose}. Give another --tables directory")

    def absent(self, table: Table) -> TableVersion:
        return DeltaVersion(table, None)

    def lake(self, name: str) -> str | None:
        delta = _open(self.location / name)
        return None if delta is None else _lake_of(delta)


class DeltaVersion:
    """:class:`tailrace.pipeline.tables.port.TableVersion`."""

    def __init__(self, table: Table, delta: DeltaTable | None) -> None:
        self.table = table if delta is None else replace(table, schema=_schema_of(delta))
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
        return [_data_file(row) for row in pa.table(self._delta.get_add_actions()).to_pylist()]

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
        with _read_errors(self.table.location):
            found = self._delta.to_pyarrow_table(columns=[*columns])
        rows: list[Mapping[str, Any]] = found.to_pylist()
        return rows

    def row_with(self, name: str, value: str, *columns: str, seconds: float) -> RowSearch:
        if self._delta is None:
            return RowSearch(None, 0, 0)
        until, wanted = time.monotonic() + seconds, pc.field(name) == value
        with _read_errors(self.table.location):
            fragments = list(self._delta.to_pyarrow_dataset().get_fragments())
            for done, fragment in enumerate(fragments):
                if done and time.monotonic() > until:
                    return RowSearch(None, done, len(fragments))
                # Row groups whose bounds exclude the value are not read.
                found = fragment.head(1, columns=[*columns], filter=wanted).to_pylist()
                if found:
                    return RowSearch(found[0], done + 1, len(fragments))
        return RowSearch(None, len(fragments), len(fragments))

    def set_properties(self, values: Mapping[str, Mapping[str, Any]]) -> TableVersion:
        changed = {name: value for name, value in values.items() if self.property(name) != value}
        if self._delta is None or not changed:
            return self
        texts = {name: _json(value) for name, value in changed.items()}
        with self._commit_errors():
            self._delta.alter.set_table_properties(texts, raise_if_not_exists=False)
        return DeltaVersion(self.table, self._delta)  # which is the new version

    def add_columns(self, fields: Sequence[StructField]) -> TableVersion:
        if self._delta is None or not fields:
            return self
        added = Schema.from_json(StructType(list(fields)).json()).fields
        with self._commit_errors():
            self._delta.alter.add_columns(added)
        return self.latest()

    def latest(self) -> TableVersion:
        if self._delta is None or not (self.table.location / "_delta_log").exists():
            return self.table.load()
        with _read_errors(self.table.location):
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
        schema: StructType | None = None,
    ) -> TableVersion:
        table = self.table if schema is None else replace(self.table, schema=schema)
        scopes = segments or {}
        versions = {f"tailrace:{table.lake}:{scope}": at for scope, at in scopes.items()}
        versions.update(applications or {})
        properties = transaction.CommitProperties(
            app_transactions=[
                transaction.Transaction(app, version) for app, version in versions.items()
            ],
            custom_metadata={_METRICS: _json(metrics or {})},
            # A retry of delta-rs would not notice that a compaction has removed the same files, and
            # their rows would be in the table twice.
            max_commit_retries=0 if removes or schema is not None else None,
        )
        now = int(time.time() * 1000)
        stored = Schema.from_json(table.schema.json())
        added = [_add(each, now) for each in adds]
        with self._commit_errors():
            if self._delta is None:
                table.location.make()
                transaction.create_table_with_add_actions(
                    table.location.uri,
                    stored,
                    added,
                    mode="error",
                    partition_by=list(table.partition_by),
                    name=_NAME + table.lake,
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
        kept = {"delta.logRetentionDuration": f"interval {hours} hours"}
        if self._delta.metadata().configuration.items() >= kept.items():
            return True
        with self._commit_errors():
            self._delta.alter.set_table_properties(kept)
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

    @contextmanager
    def _commit_errors(self) -> Iterator[None]:
        try:
            yield
        except (CommitFailedError, DeltaError, OSError) as error:
            where = self.table.location
            # "already exists": another writer has created the table meanwhile.
            if isinstance(error, CommitFailedError) or "already exists" in str(error):
                raise TablesFenced(
                    f"{where}: another pipeline writes this table; nothing of this batch was "
                    "committed to it. Run one pipeline for one --tables directory"
                ) from error
            raise PipelineRefused(
                f"{where}: the commit failed: {describe(error)}. Nothing was committed"
            ) from error


def _open(location: Location, version: int | None = None) -> DeltaTable | None:
    """The table at a location; ``None`` if there is none."""
    try:
        with _read_errors(location):
            return DeltaTable(location.uri, version, storage_options={**location.options})
    except TableNotFoundError:
        return None


@contextmanager
def _read_errors(location: Location) -> Iterator[None]:
    try:
        yield
    except TableNotFoundError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        raise PipelineRefused(
            f"{location}: cannot be read as a Delta table: {describe(error)}. Restore "
            "it, or move it away and run with --rebuild"
        ) from error


def _schema_of(delta: DeltaTable) -> StructType:
    return StructType.fromJson(json.loads(delta.schema().to_json()))


def _lake_of(delta: DeltaTable) -> str | None:
    name = delta.metadata().name or ""
    return name.removeprefix(_NAME) if name.startswith(_NAME) else None


def _add(file: DataFile, now: int) -> transaction.AddAction:
    bounds: dict[str, Any] = {}
    if file.low or file.high:
        bounds = {"minValues": dict(file.low), "maxValues": dict(file.high)}
        bounds["nullCount"] = dict(file.nulls)
    # Without escapes: deltalake 1.6.6 reads those of characters beyond 16 bits wrong.
    statistics = _json({"numRecords": file.rows, **bounds}, ensure_ascii=False)
    return transaction.AddAction(file.path, file.size, file.partition, now, True, statistics)


def _data_file(row: Mapping[str, Any]) -> DataFile:
    low, high, partition = (row.get(name) or {} for name in ("min", "max", "partition"))
    return DataFile(
        path=unquote(row["path"]),  # percent-encoded in Delta's log, but not in actions
        size=row["size_bytes"],
        rows=row["num_records"],
        partition={k: str(v).lower() if isinstance(v, bool) else v for k, v in partition.items()},
        low={name: value for name, value in low.items() if value is not None},
        high={name: value for name, value in high.items() if value is not None},
    )


def _json(record: Mapping[str, Any], *, ensure_ascii: bool = True) -> str:
    return json.dumps(
        dict(record),
        separators=(",", ":"),
        sort_keys=True,
        default=_time,
        ensure_ascii=ensure_ascii,
    )


def _time(value: Any) -> str:
    """A time as Delta's log has it (https://github.com/delta-io/delta/blob/master/PROTOCOL.md)."""
    utc: datetime = value.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='microseconds')}Z"
