"""Since when the tables of a collection hold all of its documents, or why they do not.

A stream tells of changes. What was in a collection before it began is not in the tables, until it
changes. All is there where the collection was seen to begin empty: created, dropped, or renamed
away. A gap in a scope's history, or a rename from a collection that is not whole, ends that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from tailrace.pipeline import changes
from tailrace.pipeline.delta import Snapshot
from tailrace.pipeline.lineage import STATEMENTS, Statement
from tailrace.pipeline.names import of_database
from tailrace.pipeline.position import BEFORE_ALL, seconds_of

COMPLETE = "tailrace.complete"
"""The table property that says it."""

_CREATE, _GAP, _START, _RENAME = "create", "gap", "start", "rename"


@dataclass(frozen=True, slots=True)
class Whole:
    """What is known of a table: ``at`` is since when, and ``reason`` by what."""

    complete: bool
    at: int | None
    reason: str

    def record(self) -> dict[str, Any]:
        """What the property and the commit say."""
        seconds = None if self.at in (None, BEFORE_ALL) else seconds_of(self.at)
        since = None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
        return {"complete": self.complete, "since": since, "reason": self.reason}


@dataclass
class Completeness:
    """What the log says of every table, read from it when that is first asked."""

    spark: SparkSession
    log: Snapshot
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _found: Histories | None = None

    def of(self, table: str) -> Whole:
        """What is known of a table now."""
        with self._lock:
            if self._found is None:
                self._found = replayed(self._statements(), *_gaps(self.log))
        found = self._found.of(table)
        if found.reason != _START:
            return found
        scopes = {f.partition["scope"] for f in self.log.files if f.partition["table"] == table}
        lows = (f.low.get("position") for f in self.log.files if f.partition["scope"] in scopes)
        return Whole(False, min((low for low in lows if low is not None), default=None), _START)

    def _statements(self) -> list[Statement]:
        found = changes.statements(self.spark, self.log, self.log.files, (*STATEMENTS, _CREATE))
        return [statement for _, _, statement in found]


class Histories:
    """What became of each table so far."""

    def __init__(self) -> None:
        self._tables: dict[str, Whole] = {}
        self._databases: dict[str, Whole] = {}

    def of(self, table: str) -> Whole:
        """Of one that no statement named, what is known of its database."""
        for database, whole in self._databases.items():
            if table not in self._tables and of_database(table, database):
                return whole
        return self._tables.get(table, Whole(False, None, _START))

    def apply(self, statement: Statement) -> None:
        """Takes in what comes next in the order of changes."""
        at, table, target = statement.at, statement.table, statement.target
        if statement.operation == _CREATE:
            # Behind a gap it does not tell that nothing is there which should be gone.
            if self.of(table).reason == _START:
                self._tables[table] = Whole(True, at, _CREATE)
        elif statement.operation == "drop":
            self._tables[table] = Whole(True, at, "drop")
        elif statement.operation == "dropDatabase":
            empty = self._databases[statement.database] = Whole(True, at, "dropDatabase")
            for name in self._tables:
                if of_database(name, statement.database):
                    self._tables[name] = empty
        elif table != target:
            if not self.of(table).complete:
                self._tables[target] = Whole(False, at, _RENAME)
            elif not self.of(target).complete:
                self._tables[target] = Whole(True, at, _RENAME)
            self._tables[table] = Whole(True, at, _RENAME)

    def skip(self, at: int, others: Iterable[str]) -> None:
        """Takes in a gap behind ``at``, which concerns all but the ``others``."""
        spared = set(others)
        for known in (self._tables, self._databases):
            for name in known.keys() - spared:
                known[name] = Whole(False, at, _GAP)


def replayed(
    statements: Iterable[Statement], gaps: Mapping[str, int], spared: Mapping[str, set[str]]
) -> Histories:
    """What statements and gaps come to, in their order.

    ``spared`` are, by scope, the tables that only other scopes have events of.
    """
    found = Histories()
    waiting = sorted((at, scope) for scope, at in gaps.items())
    for statement in sorted(set(statements)):
        while waiting and waiting[0][0] < statement.at:
            at, scope = waiting.pop(0)
            found.skip(at, spared.get(scope, ()))
        found.apply(statement)
    for at, scope in waiting:
        found.skip(at, spared.get(scope, ()))
    return found


def _gaps(log: Snapshot) -> tuple[dict[str, int], dict[str, set[str]]]:
    gaps: dict[str, int] = log.property(changes.GAPS)
    scopes: dict[str, set[str]] = {}
    for each in log.files:
        scopes.setdefault(each.partition["table"] or "", set()).add(each.partition["scope"] or "")
    spared = {gap: {table for table, own in scopes.items() if gap not in own} for gap in gaps}
    return gaps, spared
