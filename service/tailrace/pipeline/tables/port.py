"""The port to a table format: what the pipeline needs of a table, whatever its format.

A commit adds and removes files at once, and records the number of the last segment of each scope.
A pipeline has no other state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from tailrace.pipeline.location import Location
from tailrace.pipeline.table_schema import TableField, TableSchema

PUBLISHED = "tailrace.published"
"""The table property with the last segment of each scope that is published; in the log, by kind of
table. It may be too low after a crash."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table: its path relative to the table, its size, and statistics of its rows.

    The statistics are those of :mod:`tailrace.pipeline.bounds`.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)
    """How many rows have no value in each column; known when a file is added."""


@dataclass(frozen=True, slots=True)
class RowSearch:
    """``row``: ``None`` if there is none in the files that were searched, of all files."""

    row: Mapping[str, Any] | None
    searched: int
    files: int


@dataclass(frozen=True)
class Table:
    """A table of the pipeline, whether it exists yet or not. ``name``: its path in the store."""

    store: TableStore
    name: str
    schema: TableSchema
    lake: str
    partition_by: tuple[str, ...] = ()
    bounded: bool = False
    """Whether each file has bounds of its columns: of all of them or of none (see ``delta``)."""

    description: str = ""

    @property
    def location(self) -> Location:
        return self.store.location / self.name

    def load(self, version: int | None = None) -> TableVersion:
        """The table as committed now, or at a version; see :meth:`TableStore.load`."""
        return self.store.load(self, version)


class TableStore(Protocol):
    """A directory of tables in one format."""

    @property
    def location(self) -> Location: ...

    def require_writable(self) -> None:
        """Raises :class:`PipelineRefused` if no tables can be written here."""

    def load(self, table: Table, version: int | None = None) -> TableVersion:
        """A table as committed now, or at a version. It need not exist.

        Raises :class:`PipelineRefused` if it is not a table of this lake's pipeline.
        """

    def absent(self, table: Table) -> TableVersion:
        """A table without content, as before its first commit."""

    def lake(self, name: str) -> str | None:
        """The lake that a table belongs to; ``None`` if there is no table of a pipeline."""

    def names(self, kind: str) -> Sequence[str]:
        """The names of the tables of a kind: those of ``current/shop.orders`` without ``current/``.

        It may name a table that was never committed, as a killed run leaves it.
        """


class TableVersion(Protocol):
    """One committed version of a table.

    :meth:`commit`, :meth:`set_properties` and :meth:`latest` return the version that follows, which
    takes over what is known of the table: only ``files`` of the earlier one may be read afterwards.
    """

    @property
    def table(self) -> Table:
        """The table, with the schema that it has in this version."""

    @property
    def exists(self) -> bool: ...

    @property
    def version(self) -> int:
        """The number of the version, which grows with each commit; -1 without a table."""

    @property
    def identity(self) -> str:
        """Another one if a table was removed and created again."""

    @property
    def files(self) -> Sequence[DataFile]: ...

    def segment(self, scope: str) -> int:
        """The last segment of a scope in the table; -1 for none."""

    def application(self, name: str) -> int:
        """The number that a commit recorded under a name; -1 for none."""

    def property(self, name: str) -> Mapping[str, Any]:
        """A property of the table, which is a JSON object; empty if it was never set."""

    def set_properties(self, values: Mapping[str, Mapping[str, Any]]) -> TableVersion:
        """Sets properties, in a commit if one of them changes."""

    def add_columns(self, fields: Sequence[TableField]) -> TableVersion:
        """Adds columns, in a commit of its own. They are null in all rows."""

    def metrics_since(self, version: int) -> Sequence[Mapping[str, Any]]:
        """The counts of each commit after a version, oldest first."""

    def recent_metrics(self, commits: int) -> Sequence[tuple[datetime, Mapping[str, Any]]]:
        """The time and the counts of the last commits, newest first."""

    def row_with(self, name: str, value: str, *columns: str, seconds: float) -> RowSearch:
        """A row with a value in a text column. Searches files for about ``seconds``, one at
        least."""

    def rows(self, *columns: str) -> Sequence[Mapping[str, Any]]:
        """Every row, read by this process: only for small tables."""

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
        """Adds and removes files at once; :class:`TablesFenced` if another writer came first.

        With a ``schema``, it replaces the table's, and ``adds`` replace every file.
        """

    def latest(self) -> TableVersion:
        """The table as committed now. Costs less than loading it."""

    def compact(self, target_bytes: int) -> int:
        """Merges small files in one commit, safe beside a writer; returns how many it replaced."""

    def limit_log(self, commits: int, hours: int) -> bool:
        """From the next checkpoint on, keeps only the commits of the last ``hours`` if there are
        more than ``commits``; returns whether there are."""

    def vacuum(self, hours: float) -> int:
        """Removes files that no version of the last ``hours`` needs; returns how many."""


_COMMITS = 20
"""How many of a table's commits are looked at for its last publication."""


def published_at(version: TableVersion) -> str | None:
    """The time of the last commit of rows: compactions and properties have no counts."""
    recent = version.recent_metrics(_COMMITS) if version.exists else []
    times: list[datetime] = [at for at, counted in recent if counted] or [at for at, _ in recent]
    return times[0].isoformat(timespec="seconds") if times else None
