"""Since when the tables of a collection have all of its documents, or why they do not.

A document that existed before the stream began is missing from the tables until it changes. The
tables are complete if the collection was seen empty (created, dropped, or renamed away), or if a
snapshot read all of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tailrace.event.cluster_position import BEFORE_ALL, seconds_of
from tailrace.pipeline import changes
from tailrace.pipeline.lineage import STATEMENTS, Statement
from tailrace.pipeline.tables import TableVersion

COMPLETE = "tailrace.complete"
"""The table property that records whether and since when a table is complete."""


@dataclass(frozen=True, slots=True)
class TableCompleteness:
    complete: bool
    at: int | None
    """The position from which this holds."""
    reason: str

    def record(self) -> dict[str, Any]:
        seconds = None if self.at in (None, BEFORE_ALL) else seconds_of(self.at)
        since = None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
        return {"complete": self.complete, "since": since, "reason": self.reason}


_START = TableCompleteness(False, None, "start")


class Histories:
    """The completeness of each table, as statements and gaps are applied in order."""

    def __init__(self) -> None:
        self._tables: dict[str, TableCompleteness] = {}
        self._many: dict[Statement, TableCompleteness] = {}
        """The same for statements that name no table, in the order of their application."""

    def of(self, table: str) -> TableCompleteness:
        """The completeness of a table; if no statement named it, of one that covers it."""
        if table not in self._tables:
            for statement, known in reversed(self._many.items()):
                if statement.concerns(table):
                    return known
        return self._tables.get(table, _START)

    def apply(self, statement: Statement) -> None:
        at, table, target = statement.at, statement.table, statement.target
        empty = TableCompleteness(True, at, statement.operation)
        match statement.operation:
            case "create":
                # After a gap, the tables may still have documents of an earlier collection.
                if self.of(table) is _START:
                    self._tables[table] = empty
            case "drop":
                self._tables[table] = empty
            case "snapshotEnd" | "dropDatabase":
                if statement.operation == "snapshotEnd":
                    empty = TableCompleteness(True, at, "snapshot")
                if table:
                    self._tables[table] = empty
                    return
                self._many[statement] = empty
                for name in filter(statement.concerns, self._tables):
                    self._tables[name] = empty
            case _ if table != target:
                if not self.of(table).complete:
                    self._tables[target] = TableCompleteness(False, at, "rename")
                elif not self.of(target).complete:
                    self._tables[target] = empty
                self._tables[table] = empty

    def skip(self, at: int, others: Iterable[str]) -> None:
        """Applies a gap after ``at``, which affects all tables except the ``others``."""
        gap = TableCompleteness(False, at, "gap")
        self._many = dict.fromkeys(self._many, gap)
        for name in self._tables.keys() - set(others):
            self._tables[name] = gap


def replayed(
    statements: Iterable[Statement], gaps: Mapping[str, int], spared: Mapping[str, set[str]]
) -> Histories:
    """Applies statements, and gaps by scope, in order.

    ``spared``: by scope, the tables that have events only of other scopes.
    """
    histories = Histories()
    moments: list[tuple[int, bool, Any]] = [(each.at, False, each) for each in set(statements)]
    moments += [(at, True, scope) for scope, at in gaps.items()]
    for at, is_gap, what in sorted(moments):
        if is_gap:
            histories.skip(at, spared.get(what, ()))
        else:
            histories.apply(what)
    return histories


def histories_of(log: TableVersion) -> Histories:
    found = changes.statements(log, log.files, (*STATEMENTS, "create"))
    gaps: Mapping[str, int] = log.property(changes.GAPS)
    scopes: dict[str, set[str]] = {}
    for each in log.files:
        scopes.setdefault(each.partition["table"] or "", set()).add(each.partition["scope"] or "")
    spared = {gap: {table for table, own in scopes.items() if gap not in own} for gap in gaps}
    return replayed((each for _, _, each in found), gaps, spared)
