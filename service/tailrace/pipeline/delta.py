"""Delta tables: reads what is committed, and commits the files that Spark wrote.

A commit records the number of the last segment of each scope, as Delta's application transactions.
A pipeline has no other state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema, transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyspark.sql.types import StructType

from tailrace.errors import PipelineRefused, TablesFenced, describe
from tailrace.pipeline.location import Location

PUBLISHED = "tailrace.published"
"""The table property with the last segment of each scope that is published. It may be too low after
a crash."""

METRICS = "tailrace"
"""The key of a commit's metadata under which its counts are stored."""

_NAME = "tailrace:"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table: its path relative to the table, its size, and statistics of its rows."""

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of the pipeline, whether it exists yet or not."""

    location: Location
    schema: StructType
    lake: str
    partition_by: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    description: str = ""

    def load(self, version: int | None = None) -> Snapshot:
        """The table as committed now, or at a version.

        Raises :class:`PipelineRefused` if it is not a table of this lake's pipeline.
        """
        try:
            delta = DeltaTable(self.location.uri, version=version)
        except TableNotFoundError:
            return Snapshot(self, None)
        except (DeltaError, OSError, ValueError) as error:
            raise PipelineRefused(
                f"{self.location}: cannot be read as a Delta table: {describe(error)}. Restore "
                "it, or move it away and run with --rebuild"
            ) from error
        lake = lake_of(delta)
        if lake == self.lake:
            return Snapshot(self, delta)
        whose = f"belongs to the lake {lake}, not to {self.lake}"
        if lake is None:
            whose = "is not a table of this pipeline"
        raise PipelineRefused(f"{self.location}: {whose}. Give another --tables directory")


class Snapshot:
    """One committed version of a table."""

    def __init__(self, table: Table, delta: DeltaTable | None) -> None:
        self.table = table
        self.delta = delta

    @property
    def exists(self) -> bool:
        return self.delta is not None

    @property
    def version(self) -> int:
        """Delta's version; -1 if the table does not exist."""
        return -1 if self.delta is None else self.delta.version()

    @cached_property
    def files(self) -> list[DataFile]:
        if self.delta is None:
            return []
        return [_data_file(row) for row in pa.table(self.delta.get_add_actions()).to_pylist()]

    def segment(self, scope: str) -> int:
        """The last segment of a scope in the table; -1 for none."""
        return self.application(f"tailrace:{self.table.lake}:{scope}")

    def application(self, name: str) -> int:
        """The version of one of Delta's application transactions; -1 for none."""
        found = self.delta.transaction_version(name) if self.delta else None
        return -1 if found is None else found

    def property(self, name: str) -> dict[str, Any]:
        """A property of the table, which is a JSON object; empty if it was never set."""
        found = self.delta.metadata().configuration.get(name) if self.delta else None
        properties: dict[str, Any] = json.loads(found or "{}")
        return properties

    def set_properties(self, values: Mapping[str, Mapping[str, Any]]) -> bool:
        """Sets properties. Returns True if one changed, which makes this snapshot outdated."""
        changed = {name: value for name, value in values.items() if self.property(name) != value}
        if self.delta is None or not changed:
            return False
        texts = {name: _json(value) for name, value in changed.items()}
        with self._commit_errors():
            self.delta.alter.set_table_properties(texts, raise_if_not_exists=False)
        return True

    def commit(
        self,
        adds: Sequence[DataFile] = (),
        removes: Sequence[DataFile] = (),
        *,
        segments: Mapping[str, int] | None = None,
        applications: Mapping[str, int] | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds and removes files at once; :class:`TablesFenced` if another writer came first."""
        table = self.table
        scopes = segments or {}
        versions = {f"tailrace:{table.lake}:{scope}": at for scope, at in scopes.items()}
        versions.update(applications or {})
        properties = transaction.CommitProperties(
            app_transactions=[
                transaction.Transaction(app, version) for app, version in versions.items()
            ],
            custom_metadata={METRICS: _json(metrics or {})},
            # A retry of delta-rs would not notice that a compaction has removed the same files, and
            # their rows would be in the table twice.
            max_commit_retries=0 if removes else None,
        )
        now = int(time.time() * 1000)
        schema = Schema.from_json(table.schema.json())
        added = [_add(each, now) for each in adds]
        with self._commit_errors():
            if self.delta is None:
                table.location.make()
                transaction.create_table_with_add_actions(
                    table.location.uri,
                    schema,
                    added,
                    mode="error",
                    partition_by=list(table.partition_by),
                    name=_NAME + table.lake,
                    description=table.description,
                    commit_properties=properties,
                )
                return
            gone = [
                transaction.RemoveAction(each.path, True, now, each.size, dict(each.partition))
                for each in removes
            ]
            partition_by = list(table.partition_by)
            self.delta.create_write_transaction(
                [*added, *gone], "append", schema, partition_by, commit_properties=properties
            )

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


def lake_of(delta: DeltaTable) -> str | None:
    """The lake that a table belongs to; ``None`` if it is not a table of a pipeline."""
    name = delta.metadata().name or ""
    return name.removeprefix(_NAME) if name.startswith(_NAME) else None


def _add(file: DataFile, now: int) -> transaction.AddAction:
    bounds = {"minValues": dict(file.low), "maxValues": dict(file.high), "nullCount": {}}
    statistics = _json({"numRecords": file.rows, **bounds})
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


def _json(record: Mapping[str, Any]) -> str:
    return json.dumps(dict(record), separators=(",", ":"), sort_keys=True)
