"""What went through: counts by batch and collection, in a table of their own.

It has its own place in the log, and what publishing has counted stands in the commits of the
tables themselves, so a crash neither loses a count nor repeats one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tailrace.pipeline import changes, files
from tailrace.pipeline.delta import METRICS, Snapshot, Table
from tailrace.pipeline.location import Location
from tailrace.pipeline.log_snapshot import CURRENT_STATE
from tailrace.pipeline.names import NO_TABLE
from tailrace.pipeline.schemas import DOCUMENT_OPERATIONS, QUALITY
from tailrace.pipeline.segments import LandedLake, read_footer

LANDED, CHANGES, CURRENT, COLUMNS = "landed", "changes", "current", "columns"
"""The stages: a scope's segments, a collection's events in the log, their publication, and its
values that did not fit the declared columns."""


def quality_table(tables: Location, lake: str) -> Table:
    """The table of counts."""
    return Table(tables / "quality", QUALITY, lake, description="Counts by batch and collection")


def record(
    spark: SparkSession,
    lake: LandedLake,
    tables: Location,
    log: Snapshot,
    scopes: Iterable[str],
    published: Iterable[str],
) -> int:
    """Adds the counts of all that is in the log, and of the tables named, and not yet counted.

    Returns how many events of them were set aside.
    """
    table = quality_table(tables, lake.identity)
    snapshot = table.load()
    through = {scope: snapshot.segment(scope) for scope in scopes}
    last = {scope: log.segment(scope) for scope in scopes}
    now = datetime.now(UTC)
    single, seen = _publications(tables, lake, snapshot, published, now)
    for scope in scopes:
        single += _segments(lake, scope, through[scope], last[scope], now)
    news = changes.newer(log.files, through)
    if not (single or news):
        return 0
    if news:
        events = changes.read(spark, log.table, news).where(changes.behind(through))
        with files.job_errors(f"{table.location}: nothing was committed"):
            single += map(tuple, _counts(events, now).collect())
    adds = files.write(spark.createDataFrame(single, QUALITY).coalesce(1), table)
    snapshot.commit(adds, segments=last, applications=seen)
    at = QUALITY.names.index("set_aside")
    return sum(row[at] or 0 for row in single)


def _counts(events: DataFrame, now: datetime) -> DataFrame:
    found = events.groupBy("scope", "database", "collection").agg(
        *(
            F.expr(text)
            for text in (
                "min(segment) AS first_segment",
                "max(segment) AS last_segment",
                "count(*) AS events",
                "count_if(operation = 'insert') AS inserts",
                "count_if(operation = 'update') AS updates",
                "count_if(operation = 'replace') AS replaces",
                "count_if(operation = 'delete') AS deletes",
                "count_if(key IS NULL) AS others",
                "count(DISTINCT key) AS distinct_keys",
                "count_if(image = 'null') AS null_documents",
                f"count_if(table = '{NO_TABLE}' AND operation IN {_OPERATIONS}) AS set_aside",
                f"{now.timestamp()}D - max(cluster_seconds) AS lag_seconds",
            )
        )
    )
    made = set(found.columns)
    return found.selectExpr(
        *(
            field.name
            if field.name in made
            else f"CAST({_CONSTANTS.get(field.name, 'NULL').format(now=now)} AS "
            f"{field.dataType.simpleString()}) AS {field.name}"
            for field in QUALITY
        )
    )


_OPERATIONS = tuple(sorted(DOCUMENT_OPERATIONS))
_CONSTANTS = {"stage": f"'{CHANGES}'", "recorded_at": "'{now:%Y-%m-%d %H:%M:%S.%f}'"}


def _segments(lake: LandedLake, scope: str, after: int, last: int, now: datetime) -> list[Any]:
    """One row for a scope's segments, and one for each gap; what retention took is not counted."""
    present = lake.present(scope, range(after + 1, last + 1))
    if not present:
        return []
    footers = [read_footer(lake.file(scope, number), lake, scope, number) for number in present]
    landed = sum(footer.rows for footer in footers)
    kept = footers[-1].last_ordinal - footers[0].first_ordinal + 1
    base = {"stage": LANDED, "scope": scope, "recorded_at": now}
    rows = [
        _row(
            **base,
            first_segment=present[0],
            last_segment=present[-1],
            events=landed,
            duplicates_dropped=landed - kept,
        )
    ]
    for footer in footers:
        if footer.gap is not None:
            at = footer.segment
            gap = json.dumps(footer.gap, separators=(",", ":"))
            rows.append(_row(**base, first_segment=at, last_segment=at, events=0, gap=gap))
    return rows


def _publications(
    tables: Location, lake: LandedLake, snapshot: Snapshot, names: Iterable[str], now: datetime
) -> tuple[list[Any], dict[str, int]]:
    """A row for each commit of the tables named that none was written for."""
    rows: list[Any] = []
    seen: dict[str, int] = {}
    for name in names:
        table = CURRENT_STATE.table(tables, lake.identity, name).load()
        if table.delta is None:
            continue
        # A table that was made again begins with version 0, and has another identity.
        application = f"tailrace:published:{table.delta.metadata().id}"
        before = snapshot.delta.transaction_version(application) if snapshot.delta else None
        before = -1 if before is None else before
        if table.version <= before:
            continue
        seen[application] = table.version
        for commit in reversed(table.delta.history(table.version - before)):
            counted: Mapping[str, Any] = json.loads(commit.get(METRICS) or "{}")
            if "events" in counted:
                rows += _publication(name, counted, now)
    return rows, seen


def _publication(name: str, counted: Mapping[str, Any], now: datetime) -> list[Any]:
    database, _, collection = name.partition(".")
    scopes = [
        scope
        for scope, segment in counted["through"].items()
        if segment > counted["since"].get(scope, -1)
    ]
    base = {
        "scope": ",".join(scopes),
        "first_segment": min((counted["since"][scope] + 1 for scope in scopes), default=None),
        "last_segment": max((counted["through"][scope] for scope in scopes), default=None),
        "database": database,
        "collection": collection,
        "recorded_at": now,
    }
    counts = {name: counted.get(name, 0) for name in _COUNTS}
    whole = dict(counted.get("complete") or {})
    if whole.get("since"):
        whole["since"] = datetime.fromisoformat(whole["since"])
    return [
        _row(**base, stage=CURRENT, **counts, **whole),
        *(
            _row(**base, stage=COLUMNS, field=field, rescued=count)
            for field, count in counted.get("rescued", {}).items()
        ),
    ]


_COUNTS = ("events", "updates_without_base", "duplicates_dropped", "set_aside")


def _row(**values: Any) -> tuple[Any, ...]:
    return tuple(values.get(name) for name in QUALITY.names)
