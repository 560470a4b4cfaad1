"""Delta tables: what is committed, and the one commit that adds what Spark wrote.

A commit carries, as Delta's own application transactions, the number of the last segment that it
holds of each scope. That is all the state of a pipeline: what is committed is done, what is not
leaves files that no table knows, and of two writers one is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    RemoveAction,
    Transaction,
    create_table_with_add_actions,
)
from pyspark.sql.types import StructType

from tailrace.errors import PipelineRefused, TablesFenced, describe
from tailrace.pipeline.location import Location

PUBLISHED = "tailrace.published"
"""The table property that says through which segment of each scope a table is published."""

METRICS = "tailrace"
"""Where a commit's own record holds what it counted."""

_NAME = "tailrace:"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table: its path from the table's directory, and what its footer says."""

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of the path: unique, for Spark puts a UUID in it."""
        return self.path.rpartition("/")[2]


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
        """What is committed now, or was at a version.

        Raises :class:`PipelineRefused` for a table of another lake, or of something else.
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
        if lake != self.lake:
            whose = (
                "is not a table of this pipeline"
                if lake is None
                else f"belongs to the lake {lake}, not to {self.lake}"
            )
            raise PipelineRefused(f"{self.location}: {whose}. Give another --tables directory")
        return Snapshot(self, delta)


class Snapshot:
    """A table as it was committed at one moment."""

    def __init__(self, table: Table, delta: DeltaTable | None) -> None:
        self.table = table
        self.delta = delta

    @property
    def exists(self) -> bool:
        """Whether anything was ever committed."""
        return self.delta is not None

    @property
    def version(self) -> int:
        """Delta's version; -1 for a table that is not there."""
        return -1 if self.delta is None else self.delta.version()

    @cached_property
    def files(self) -> list[DataFile]:
        """The files that the table consists of."""
        if self.delta is None:
            return []
        rows = pa.table(self.delta.get_add_actions(flatten=True)).to_pylist()
        return [_data_file(row) for row in rows]

    def segment(self, scope: str) -> int:
        """The last segment of a scope that is in the table; -1 for none."""
        if self.delta is None:
            return -1
        found = self.delta.transaction_version(self._application(scope))
        return -1 if found is None else found

    def published(self) -> dict[str, int]:
        """What the table's property says: never ahead of what is true."""
        return self.property(PUBLISHED)

    def property(self, name: str) -> dict[str, Any]:
        """One of the table's properties, which are JSON objects; empty where it was never set."""
        if self.delta is None:
            return {}
        found: dict[str, Any] = json.loads(self.delta.metadata().configuration.get(name) or "{}")
        return found

    def set_property(self, name: str, value: Mapping[str, Any]) -> bool:
        """Sets a property, unless it says that already; returns whether there was need to.

        The snapshot is then an old one.
        """
        if self.delta is None or self.property(name) == value:
            return False
        text = json.dumps(value, separators=(",", ":"), sort_keys=True)
        try:
            self.delta.alter.set_table_properties({name: text}, raise_if_not_exists=False)
        except CommitFailedError as error:
            raise self._fenced() from error
        except (DeltaError, OSError) as error:
            raise PipelineRefused(f"{self.table.location}: {describe(error)}") from error
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
        """Adds and removes files at once, on top of this snapshot.

        Raises :class:`TablesFenced` where another writer has committed what this one wants to.
        """
        table = self.table
        versions = {self._application(scope): at for scope, at in (segments or {}).items()}
        versions |= applications or {}
        properties = CommitProperties(
            app_transactions=[Transaction(app, version) for app, version in versions.items()],
            custom_metadata={METRICS: json.dumps(dict(metrics or {}), separators=(",", ":"))},
            # delta-rs retries on top of what others committed, and would not see that a compaction
            # has removed the same files: their rows would be there twice.
            max_commit_retries=0 if removes else None,
        )
        now = int(time.time() * 1000)
        schema = Schema.from_json(table.schema.json())
        added = [_add(each, now) for each in adds]
        try:
            if self.delta is None:
                table.location.make()
                create_table_with_add_actions(
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
                RemoveAction(
                    path=each.path,
                    data_change=True,
                    deletion_timestamp=now,
                    size=each.size,
                    partition_values=dict(each.partition),
                )
                for each in removes
            ]
            self.delta.create_write_transaction(
                [*added, *gone],
                "append",
                schema,
                list(table.partition_by),
                commit_properties=properties,
            )
        except CommitFailedError as error:
            raise self._fenced() from error
        except (DeltaError, OSError) as error:
            if "already exists" in str(error):  # the table was made meanwhile
                raise self._fenced() from error
            raise PipelineRefused(
                f"{table.location}: the commit failed: {describe(error)}. Nothing was committed"
            ) from error

    def _fenced(self) -> TablesFenced:
        return TablesFenced(
            f"{self.table.location}: another pipeline writes this table; nothing of this batch was "
            "committed to it. Run one pipeline for one --tables directory"
        )

    def _application(self, scope: str) -> str:
        return f"tailrace:{self.table.lake}:{scope}"


def lake_of(delta: DeltaTable) -> str | None:
    """The lake that a table belongs to; ``None`` for a table of something else."""
    name = delta.metadata().name or ""
    return name.removeprefix(_NAME) if name.startswith(_NAME) else None


def set_published(table: Table, segments: Mapping[str, int]) -> None:
    """Sets the property that says through which segments a table is published."""
    table.load().set_property(PUBLISHED, segments)


def _add(file: DataFile, now: int) -> AddAction:
    statistics = {
        "numRecords": file.rows,
        "minValues": dict(file.low),
        "maxValues": dict(file.high),
        "nullCount": dict(file.nulls),
    }
    return AddAction(file.path, file.size, file.partition, now, True, json.dumps(statistics))


def _data_file(row: Mapping[str, Any]) -> DataFile:
    def part(prefix: str) -> dict[str, Any]:
        return {
            name[len(prefix) :]: value
            for name, value in row.items()
            if name.startswith(prefix) and (value is not None or prefix == "partition.")
        }

    partition = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in part("partition.").items()
    }
    return DataFile(
        unquote(row["path"]),  # Delta's log has it percent-encoded, and actions take it as it is
        row["size_bytes"],
        row["num_records"],
        partition,
        part("min."),
        part("max."),
        part("null_count."),
    )
