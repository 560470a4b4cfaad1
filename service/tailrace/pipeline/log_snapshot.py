"""What is published, and the log at one moment that it is published from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tailrace.pipeline import changes
from tailrace.pipeline.columns import COLUMNS
from tailrace.pipeline.completeness import Completeness
from tailrace.pipeline.delta import DataFile, Snapshot, Table
from tailrace.pipeline.lineage import STATEMENTS, Statement
from tailrace.pipeline.location import Location
from tailrace.pipeline.names import NO_TABLE
from tailrace.pipeline.position import BEFORE_ALL
from tailrace.pipeline.schemas import CURRENT, HISTORY


@dataclass(frozen=True, slots=True)
class TableKind:
    """What is published: ``current`` or ``history``."""

    name: str
    schema: StructType
    partition_by: tuple[str, ...]
    description: str

    def table(self, tables: Location, lake: str, name: str) -> Table:
        """The table of one collection."""
        statistics = ("cluster_seconds", "valid_from_position")
        return Table(
            tables / self.name / name, self.schema, lake, self.partition_by, statistics,
            f"{self.description} {name}",
        )  # fmt: skip

    def open_files(self, snapshot: Snapshot) -> list[DataFile]:
        """The files of versions that nothing has ended."""
        if not self.partition_by:
            return snapshot.files
        return [each for each in snapshot.files if each.partition["is_current"] == "true"]

    @property
    def stored(self) -> StructType:
        """What a file holds itself."""
        return StructType([each for each in self.schema if each.name not in self.partition_by])


CURRENT_STATE = TableKind("current", CURRENT, (), "The live documents of")
HISTORY_STATE = TableKind("history", HISTORY, ("is_current",), "Every version of the documents of")


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The log at one moment, and the statements in it that may matter now."""

    spark: SparkSession
    tables: Location
    log: Snapshot
    scopes: tuple[str, ...]
    statements: tuple[tuple[str, int, Statement], ...]
    """With scope and segment."""

    settled: Mapping[str, Mapping[str, int]]
    """By kind, the segments through which all of its tables are published."""

    completeness: Completeness

    def through(self) -> dict[str, int]:
        """The last segment of each scope in the log."""
        return {scope: self.log.segment(scope) for scope in self.scopes}

    def existing(self, kind: TableKind) -> set[str]:
        """The collections that have a table."""
        return {name for name, _ in (self.tables / kind.name).names()}

    def logged(self) -> set[str]:
        """The collections that have events."""
        return {each.partition["table"] or NO_TABLE for each in self.log.files} - {NO_TABLE}

    def columns(self, table: str) -> Mapping[str, str]:
        """The columns declared for a collection: path to type."""
        found: Mapping[str, str] = self.log.property(COLUMNS).get(table, {})
        return found

    def of(self, table: str) -> list[DataFile]:
        """The files with the events of a collection."""
        return [each for each in self.log.files if each.partition["table"] == table]


def log_snapshot_of(
    spark: SparkSession,
    tables: Location,
    log: Snapshot,
    scopes: Sequence[str],
    kinds: Sequence[TableKind],
    *,
    afresh: bool = False,
) -> LogSnapshot:
    """The log with the statements that tables of these kinds may not have seen yet."""
    marker = {} if afresh else log.published()
    completeness = Completeness(spark, log)
    empty = LogSnapshot(spark, tables, log, tuple(scopes), (), {}, completeness)
    # A kind without any table is made from the whole of the log.
    settled = {kind.name: marker if empty.existing(kind) else {} for kind in kinds}
    behind = any(empty.logged() - empty.existing(kind) for kind in kinds)
    news = changes.newer(log.files, marker)
    first = min((each.low.get("position", BEFORE_ALL) for each in news), default=2**63)
    # Those behind the marker, and those as young as the first new event.
    unseen = [
        each
        for each in log.files
        if changes.newer([each], {} if behind else marker)
        or each.high.get("position", BEFORE_ALL) >= first
    ]
    statements = tuple(changes.statements(spark, log, unseen, STATEMENTS))
    return LogSnapshot(spark, tables, log, tuple(scopes), statements, settled, completeness)
