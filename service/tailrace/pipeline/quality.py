"""The table ``quality``: counts by batch and collection.

The table has its own position in the log. A publication is counted while Spark writes its rows, and
the commit of the published table has the counts, so a crash neither loses nor repeats a count.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import structlog

from tailrace.pipeline import changes, files
from tailrace.pipeline.event_counts import counts_of
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE, TableKind
from tailrace.pipeline.schemas import QUALITY
from tailrace.pipeline.segments import LandedLake, read_footer
from tailrace.pipeline.tables import Table, TableStore, TableVersion
from tailrace.pipeline.typed_columns import stored_columns

_log = structlog.get_logger()

_NAMED = 20
"""How many fields a warning names."""


def quality_table(tables: TableStore, lake: str) -> Table:
    return Table(tables, "quality", QUALITY, lake, description="Counts by batch and collection")


def record(
    lake: LandedLake,
    tables: TableStore,
    log: TableVersion,
    scopes: Iterable[str],
    published: Iterable[str],
    *,
    since: int | None,
) -> int:
    """Adds the counts that are still missing, of the log and of the tables ``published`` since the
    log had a version; of all tables if another version was counted last, as after a crash.

    Returns how many of the counted events were set aside.
    """
    table = quality_table(tables, lake.identity)
    snapshot = table.load()
    counted = _counted(log)
    if snapshot.application(counted) != since:
        published = tables.names(CURRENT_STATE.name)
    through = {scope: snapshot.segment(scope) for scope in scopes}
    last = {scope: log.segment(scope) for scope in scopes}
    rows, seen = _publications(tables, lake, snapshot, published)
    for scope in scopes:
        rows += _segments(lake, scope, through[scope], last[scope])
    news = changes.newer(log.files, through)
    if not (rows or news) and snapshot.application(counted) == log.version:
        return 0
    seen[counted] = log.version
    now = datetime.now(UTC)
    for row in counts_of(log, news, through):
        if (seconds := row.pop("last")) is not None:
            row["lag_seconds"] = now.timestamp() - seconds
        rows.append({"stage": "changes", **row})
    made = pa.Table.from_pylist([{"recorded_at": now, **row} for row in rows], QUALITY.arrow())
    adds = files.write_arrow(made, table)
    snapshot.commit(adds, segments=last, applications=seen)
    _warn_of_rescued(rows)
    return sum(row.get("set_aside") or 0 for row in rows)


def is_counted(tables: TableStore, log: TableVersion) -> bool:
    """Whether :func:`record` has nothing to add for this version of the log."""
    return quality_table(tables, log.table.lake).load().application(_counted(log)) == log.version


def _counted(log: TableVersion) -> str:
    """The name under which the last counted version of the log is recorded."""
    return f"tailrace:counted:{log.identity}"


def _warn_of_rescued(rows: Iterable[Mapping[str, Any]]) -> None:
    counts: dict[str, int] = {}
    for row in rows:
        if row["stage"] == "columns":
            name = f"{row['database']}.{row['collection']}: {row['field']}"
            counts[name] = counts.get(name, 0) + row["rescued"]
    if counts:
        some = dict(sorted(counts.items(), key=lambda each: -each[1])[:_NAMED])
        _log.warning("values.rescued", count=sum(counts.values()), fields=some)


def _segments(lake: LandedLake, scope: str, after: int, last: int) -> list[dict[str, Any]]:
    """One row for a scope's segments, and one for each gap. Removed segments are not counted."""
    present = lake.present(scope, range(after + 1, last + 1))
    if not present:
        return []
    footers = [read_footer(lake, scope, number) for number in present]
    landed = sum(footer.rows for footer in footers)
    distinct = footers[-1].last_ordinal - footers[0].first_ordinal + 1
    base: dict[str, Any] = {"stage": "landed", "scope": scope}
    span = {"first_segment": present[0], "last_segment": present[-1]}
    rows = [base | span | {"events": landed, "duplicates_dropped": landed - distinct}]
    for footer in footers:
        if footer.gap is not None:
            gap = json.dumps(footer.gap, separators=(",", ":"))
            span = {"first_segment": footer.segment, "last_segment": footer.segment}
            rows.append(base | span | {"events": 0, "gap": gap})
    return rows


def _publications(
    tables: TableStore, lake: LandedLake, snapshot: TableVersion, names: Iterable[str]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Rows for each commit of these tables that is not counted yet, and the tables' versions."""
    rows: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for name in names:
        for kind, table in _counting(tables, lake, name):
            # A table that was created again starts at version 0, with another identity.
            application = f"tailrace:published:{table.identity}"
            before = snapshot.application(application)
            if table.version <= before:
                continue
            seen[application] = table.version
            for counted in table.metrics_since(before):
                if "events" in counted:
                    rows += _publication(kind, name, counted)
    return rows, seen


def _counting(
    tables: TableStore, lake: LandedLake, name: str
) -> Iterator[tuple[TableKind, TableVersion]]:
    """The tables of a collection whose commits have counts: ``history`` only of rescued values."""
    current = CURRENT_STATE.table(tables, lake.identity, name).load()
    if not current.exists:
        return
    yield CURRENT_STATE, current
    if stored_columns(current.table.schema):
        history = HISTORY_STATE.table(tables, lake.identity, name).load()
        if history.exists:
            yield HISTORY_STATE, history


def _publication(kind: TableKind, name: str, counted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The counts of one commit. Both kinds of tables may count rescued values, but never those of
    the same publication; all else is counted with ``current``."""
    database, _, collection = name.partition(".")
    through, since = counted["through"], counted["since"]
    scopes = [scope for scope, segment in through.items() if segment > since.get(scope, -1)]
    base = {
        "scope": ",".join(scopes),
        "first_segment": min((since[scope] + 1 for scope in scopes), default=None),
        "last_segment": max((through[scope] for scope in scopes), default=None),
        "database": database,
        "collection": collection,
    }
    names = ("events", "updates_without_base", "duplicates_dropped", "set_aside")
    complete = dict(counted["complete"])
    if complete["since"]:
        complete["since"] = datetime.fromisoformat(complete["since"])
    counts = {name: counted[name] for name in names}
    rescued = counted["rescued"].items()
    rows = [{**base, "stage": "current", **counts, **complete}] if kind is CURRENT_STATE else []
    return [
        *rows,
        *({**base, "stage": "columns", "field": path, "rescued": count} for path, count in rescued),
    ]
