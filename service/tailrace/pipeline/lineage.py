"""The order of changes, and where documents go when collections are dropped or renamed.

Each version of a document belongs to a *line*. A version replaces the previous version of its key
only within a line. A rename continues the line under another name; a drop ends the line, and events
after the drop begin a new one. A batch has few statements, so the driver computes a table of
routes, which Spark joins with the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc

from tailrace.event.cluster_position import BEFORE_ALL, EPOCH_SECONDS, position
from tailrace.pipeline.schemas import of_database, table_name

SNAPSHOT_END = "snapshotEnd"
STATEMENTS = ("drop", "dropDatabase", "rename", SNAPSHOT_END)


def position_sql(seconds: str, increment: str) -> str:
    """:func:`position` in SQL; null for null."""
    return f"shiftleft({seconds} - {EPOCH_SECONDS}L, 32) + {increment}"


def position_of(
    seconds: pa.Array | pa.ChunkedArray, increments: pa.Array | pa.ChunkedArray
) -> pa.Array | pa.ChunkedArray:
    """:func:`position` of each value; null for null."""
    return pc.add(pc.multiply(pc.subtract(seconds, EPOCH_SECONDS), 2**32), increments)


def time_sql(column: str) -> str:
    """The timestamp of a position; null for null and for :data:`BEFORE_ALL`."""
    return f"timestamp_seconds(nullif(shiftright({column}, 32) + {EPOCH_SECONDS}L, 0L))"


@dataclass(frozen=True, slots=True, order=True)
class Statement:
    """A drop, a dropDatabase (``table`` is empty), a rename (to ``target``) or a snapshot's end.

    The snapshot of a table began at ``since``: a document without a version since then is no longer
    in the collection. A snapshot's end without a ``table`` covers a whole database (or the cluster,
    if ``database`` is empty): all of its tables but the ``others`` were empty.
    """

    at: int
    operation: str
    database: str
    table: str
    target: str = ""
    since: int | None = None
    others: tuple[str, ...] = ()

    @classmethod
    def all_of(cls, row: Mapping[str, Any]) -> list[Statement]:
        """The statements in a row of the log; none if a name is missing."""
        if row["operation"] == SNAPSHOT_END:
            return cls._of_snapshot(row)
        found = cls._of(row)
        return [] if found is None else [found]

    @classmethod
    def _of_snapshot(cls, row: Mapping[str, Any]) -> list[Statement]:
        """One statement for each collection that was read as a whole, and one for absent ones.

        A snapshot with a filter gives none, because it does not show what is missing.
        """
        match json.loads(row["extra"] or "{}").get("snapshot"):
            case {
                "filter": "",
                "began": {"$timestamp": {"t": int(seconds), "i": int(increment)}},
                "collections": list(collections),
                **more,
            } if row["position"] is not None:
                since = position(seconds, increment)
            case _:
                return []
        at = row["position"]
        tables = [table_name(each["db"], each["coll"]) for each in collections]
        statements = [
            cls(at, SNAPSHOT_END, each["db"], table, "", since)
            for each, table in zip(collections, tables, strict=True)
            if each.get("state") == "done"
        ]
        if more.get("chosen") == []:
            database, collection = row["database"] or "", row["collection"]
            table = table_name(database, collection) if collection is not None else ""
            if table not in tables:
                statements.append(cls(at, SNAPSHOT_END, database, table, "", since, tuple(tables)))
        return statements

    @property
    def begin(self) -> int:
        """Versions at or after this position are not affected."""
        return self.at if self.since is None else self.since

    @classmethod
    def _of(cls, row: Mapping[str, Any]) -> Statement | None:
        database, collection = row["database"], row["collection"]
        if database is None or (collection is None and row["operation"] != "dropDatabase"):
            return None
        target = ""
        if row["operation"] == "rename":
            match json.loads(row["extra"] or "{}").get("to"):
                case {"db": str(to_database), "coll": str(to_collection)}:
                    target = table_name(to_database, to_collection)
                case _:
                    return None
        return cls(
            BEFORE_ALL if row["position"] is None else row["position"],
            row["operation"],
            database,
            table_name(database, collection) if row["operation"] != "dropDatabase" else "",
            target,
        )

    def concerns(self, table: str) -> bool:
        """Whether the statement ends a table's documents: dropped, renamed, or overwritten."""
        if not self.table:
            covered = not self.database or of_database(table, self.database)
            return covered and table not in self.others
        return table == self.table or (table == self.target and self.target != self.table)

    def touches(self, tables: Iterable[str]) -> set[str]:
        """The tables that the statement names, and those of ``tables`` that it changes."""
        named = {name for name in (self.table, self.target) if name}
        return named | {table for table in tables if self.concerns(table)}


@dataclass(frozen=True, slots=True)
class Hop:
    """How long a line is in a table: since a rename (``None``: since the version) ``until``."""

    table: str
    since: int | None
    until: int | None
    ended_by: str | None


@dataclass(frozen=True, slots=True)
class VersionRoute:
    """The line and hops of versions that are in ``table`` at some times and were made at others.

    They are there from ``after`` on and before ``before``: since the change that made them, or
    since the rename that moved them. That change was from ``made_after`` on and before
    ``made_before``: a snapshot ends the versions that were made before it began.
    """

    table: str
    after: int | None
    before: int | None
    made_after: int | None
    made_before: int | None
    line: str
    hops: tuple[Hop, ...]


def routes(tables: Iterable[str], statements: Sequence[Statement]) -> list[VersionRoute]:
    """The routes of every table. A table's routes cover all of time without overlapping."""
    ordered = sorted(set(statements))
    of_tables = []
    for table in sorted(tables):
        reached = _reached(table, ordered)
        moves = {each.at for each in ordered if each.since is None and each.concerns(table)}
        snapshots = {each.since for each in ordered if any(map(each.concerns, reached))} - {None}
        for after, before in _spans(moves):
            for made_after, made_before in _spans(snapshots):
                line, hops = _follow(table, after, made_after, ordered)
                route = VersionRoute(table, after, before, made_after, made_before, line, hops)
                of_tables.append(route)
    return of_tables


def _spans(bounds: Iterable[int | None]) -> list[tuple[int | None, int | None]]:
    """The spans of time between the bounds, without a begin or an end at the outer ones."""
    ordered = [None, *sorted(each for each in bounds if each is not None), None]
    return list(pairwise(ordered))


def _reached(table: str, statements: Iterable[Statement]) -> set[str]:
    """The table, and those to which renames may move its documents."""
    renames = [each for each in statements if each.operation == "rename"]
    members = {table}
    while more := {each.target for each in renames if each.table in members} - members:
        members |= more
    return members


def connected(table: str, statements: Iterable[Statement]) -> set[str]:
    """The table, and those from which one or more renames may have moved documents to it."""
    renames = [each for each in statements if each.operation == "rename"]
    members = {table}
    while True:
        more = {each.table for each in renames if each.target in members} - members
        if not more:
            return members
        members |= more


def _follow(
    table: str, after: int | None, made_after: int | None, statements: Sequence[Statement]
) -> tuple[str, tuple[Hop, ...]]:
    hops: list[Hop] = []
    moved: int | None = None
    gone = False
    for statement in statements:
        # A version with the time of a statement was made after it.
        since = after if statement.since is None else made_after
        if since is not None and statement.begin <= since:
            continue
        if not statement.concerns(table):
            continue
        if not gone:
            hops.append(Hop(table, moved, statement.at, statement.operation))
        if statement.operation == SNAPSHOT_END:
            gone = True  # newer versions continue the same line
            continue
        if statement.operation != "rename" or statement.table != table:
            return f"{table}@{statement.at}", tuple(hops)
        table, moved = statement.target, statement.at
    if not gone:
        hops.append(Hop(table, moved, None, None))
    return table, tuple(hops)
