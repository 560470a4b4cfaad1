"""The published kinds of tables, and the log as of a publication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tailrace.config.pipeline import REST, TypedColumn
from tailrace.event.cluster_position import BEFORE_ALL
from tailrace.pipeline import changes
from tailrace.pipeline.completeness import Histories, TableCompleteness, histories_of
from tailrace.pipeline.lineage import STATEMENTS, Statement
from tailrace.pipeline.schemas import CURRENT, HISTORY, NO_TABLE
from tailrace.pipeline.table_schema import TableSchema
from tailrace.pipeline.tables import PUBLISHED, DataFile, Table, TableStore, TableVersion
from tailrace.pipeline.typed_columns import (
    AUTO_COLUMNS,
    COLUMNS,
    Columns,
    RescuedField,
    schema_with,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TableKind:
    name: str
    schema: TableSchema
    partition_by: tuple[str, ...]
    description: str

    def table(
        self, tables: TableStore, lake: str, name: str, columns: Columns | None = None
    ) -> Table:
        """The table of a collection; ``columns``: the typed ones that it is created with."""
        schema = schema_with(self.schema, columns or {})
        description = f"{self.description} {name}"
        return Table(
            tables, f"{self.name}/{name}", schema, lake, self.partition_by, description=description
        )

    def open_files(self, snapshot: TableVersion) -> list[DataFile]:
        files = snapshot.files
        return [each for each in files if each.partition.get("is_current", "true") == "true"]


CURRENT_STATE = TableKind("current", CURRENT, (), "The live documents of")
HISTORY_STATE = TableKind("history", HISTORY, ("is_current",), "Every version of the documents of")


@dataclass(frozen=True)
class LogSnapshot:
    """One version of the log, with the statements in it that may not be applied yet."""

    spark: SparkSession
    tables: TableStore
    log: TableVersion
    scopes: tuple[str, ...]
    statements: tuple[tuple[str, int, Statement], ...]
    """Each with its scope and segment."""

    settled: Mapping[str, Mapping[str, int]]
    """By kind of table, the last segment of each scope that all of its tables have."""

    rebuild: bool = False
    """Whether the tables are rebuilt from the log alone."""

    @property
    def counts_rescued(self) -> str:
        """The kind of table that counts the values that do not fit their column: the one that has
        every version, and so evaluates the columns of each."""
        return HISTORY_STATE.name if HISTORY_STATE.name in self.settled else CURRENT_STATE.name

    def through(self) -> dict[str, int]:
        return {scope: self.log.segment(scope) for scope in self.scopes}

    def existing(self, kind: TableKind) -> set[str]:
        return set(self.tables.names(kind.name))

    def candidates(self, kinds: Sequence[TableKind]) -> tuple[list[tuple[TableKind, str]], bool]:
        """The tables with new changes, and whether a statement requires publishing all of them."""
        candidates = []
        moved = False
        for kind in kinds:
            existing, logged = self.existing(kind), self.logged()
            through = self.settled[kind.name]
            fresh = [each for scope, at, each in self.statements if at > through.get(scope, -1)]
            news = changes.newer(self.log.files, through)
            wanted = {each.partition["table"] or NO_TABLE for each in news} - {NO_TABLE}
            touched = (each.touches(existing | logged) for each in fresh)
            wanted |= (logged - existing).union(*touched)
            candidates += [(kind, name) for name in sorted(wanted)]
            moved = moved or bool(fresh)
        return candidates, moved

    def logged(self) -> set[str]:
        return {each.partition["table"] or NO_TABLE for each in self.log.files} - {NO_TABLE}

    def completeness(self, table: str) -> TableCompleteness:
        known = self._histories.of(table)
        if known.reason != "start":
            return known
        scopes = {f.partition["scope"] for f in self.of(table)}
        lows = (f.low.get("position") for f in self.log.files if f.partition["scope"] in scopes)
        return replace(known, at=min((low for low in lows if low is not None), default=None))

    @cached_property
    def _histories(self) -> Histories:
        return histories_of(self.log)

    def is_auto(self, table: str) -> bool:
        """Whether the fields of a collection become columns as they appear."""
        return is_auto(self.log.property(COLUMNS), table)

    def declared(self, table: str) -> Columns:
        """The declared columns of a collection."""
        return declared_columns(self.log).get(table, {})

    def columns(self, table: str) -> Columns:
        """The columns of a collection: the declared ones, and those of the fields that appeared."""
        declared = self.declared(table)
        return {**declared, **found_columns(self.log, table, declared, auto=self.is_auto(table))}

    def of(self, table: str) -> list[DataFile]:
        return self._by_table.get(table, [])

    @cached_property
    def _by_table(self) -> Mapping[str | None, list[DataFile]]:
        found: dict[str | None, list[DataFile]] = {}
        for each in self.log.files:
            found.setdefault(each.partition["table"], []).append(each)
        return found


def published(log: TableVersion, kind: TableKind) -> Mapping[str, int]:
    """The last segment of each scope that all tables of a kind have; it may be too low after a
    crash."""
    through: Mapping[str, int] = log.property(PUBLISHED).get(kind.name, {})
    return through


def declared_columns(log: TableVersion) -> Mapping[str, Columns]:
    """The declared columns, by table."""
    return {
        table: {
            name: TypedColumn.model_validate(column)
            for name, column in columns.items()
            if name != REST
        }
        for table, columns in log.property(COLUMNS).items()
    }


def is_auto(declaration: Mapping[str, Mapping[str, Any]], table: str) -> bool:
    """Whether the fields of a table become columns as they appear."""
    return any(REST in declaration.get(name, {}) for name in (table, REST))


def found_columns(log: TableVersion, table: str, declared: Columns, *, auto: bool) -> Columns:
    """The columns that a table got as its fields appeared. Those that are declared win."""
    record = log.property(AUTO_COLUMNS).get(table, {}) if auto else {}
    paths = {each.path for each in declared.values()}
    names = {name.lower() for name in declared}
    typed = {
        name: TypedColumn(type=kind, path=name)
        for name, kind in record.get("columns", {}).items()
        if name not in paths and name.lower() not in names
    }
    fields = (path for path in record.get("rescued", ()) if path not in paths)
    return {**typed, **{f"$.{path}": RescuedField(path) for path in fields}}


def log_snapshot_of(
    spark: SparkSession,
    tables: TableStore,
    log: TableVersion,
    scopes: Sequence[str],
    kinds: Sequence[TableKind],
    *,
    rebuild: bool = False,
) -> LogSnapshot:
    """The log, with the statements that tables of these kinds may not have applied yet."""
    snapshot = LogSnapshot(spark, tables, log, tuple(scopes), (), {}, rebuild)
    # A kind that has no table yet is built from the whole log.
    settled = {
        kind.name: {} if rebuild or not snapshot.existing(kind) else published(log, kind)
        for kind in kinds
    }
    made_anew = any(snapshot.logged() - snapshot.existing(kind) for kind in kinds)
    # One kind may be behind the other: `history` is, after it was switched off.
    known = {s: min(each.get(s, -1) for each in settled.values()) for s in scopes}
    first = changes.first_position(changes.newer(log.files, known))
    unseen = [
        each
        for each in log.files
        if changes.newer([each], {} if made_anew else known)
        or each.high.get("position", BEFORE_ALL) >= first
    ]
    statements = tuple(changes.statements(log, unseen, STATEMENTS))
    return replace(snapshot, statements=statements, settled=settled)
