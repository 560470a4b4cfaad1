"""The log of changes: a table that has every landed event once, and only grows."""

from collections.abc import Iterable, Mapping, Sequence

from pyarrow import compute as pc

from tailrace.event.cluster_position import BEFORE_ALL
from tailrace.pipeline import files
from tailrace.pipeline.lineage import Statement
from tailrace.pipeline.schemas import CHANGES, NO_TABLE
from tailrace.pipeline.tables import DataFile, Table, TableStore, TableVersion

GAPS = "tailrace.gaps"
"""The log's property that records, by scope, the position of the last event before a gap."""


def changes_table(tables: TableStore, lake: str) -> Table:
    return Table(
        tables,
        "changes",
        CHANGES,
        lake,
        ("scope", "table"),
        bounded=True,  # by which this pipeline chooses files, too
        description="Every change that Tailrace has landed, once",
    )


def statements(
    log: TableVersion, chosen: Iterable[DataFile], operations: Sequence[str]
) -> list[tuple[str, int, Statement]]:
    """Each with its scope and segment. They are few, so this process reads them."""
    names = ("segment", "operation", "database", "collection", "extra", "position")
    logged = []
    files_of_none = [file for file in chosen if file.partition["table"] == NO_TABLE]
    for file, rows in files.read_here(log.table, files_of_none, names):
        some = rows.filter(pc.field("operation").isin([*operations]))
        logged += [(file.partition["scope"] or "", row) for row in some.to_pylist()]
    return [
        (scope, row["segment"], statement)
        for scope, row in logged
        for statement in Statement.all_of(row)
    ]


def newer(chosen: Sequence[DataFile], through: Mapping[str, int]) -> list[DataFile]:
    """The files that may hold events after the given segments (by scope)."""
    return [
        each
        for each in chosen
        if each.high.get("segment", 2**63) > through.get(each.partition["scope"] or "", -1)
    ]


def first_position(chosen: Iterable[DataFile]) -> int:
    """A position that no event in the files precedes."""
    found: int = min((each.low.get("position", BEFORE_ALL) for each in chosen), default=2**63)
    return found


def after(through: Mapping[str, int]) -> str:
    """SQL for whether an event's segment is after the given segment of its scope."""
    if not through:
        return "true"
    known = " ".join(f"WHEN '{scope}' THEN {segment}" for scope, segment in through.items())
    return f"segment > CASE scope {known} ELSE -1 END"
