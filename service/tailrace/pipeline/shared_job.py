"""Computes the next states of many small tables in one Spark job, and commits each by itself.

The rows of small tables are few, so this process takes them from Spark and writes the files of each
table.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyarrow import compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tailrace.pipeline import files, spark_files
from tailrace.pipeline.lineage import routes
from tailrace.pipeline.log_snapshot import CURRENT_STATE, LogSnapshot
from tailrace.pipeline.publish import Publication, TableInput, commit
from tailrace.pipeline.schemas import collection_of
from tailrace.pipeline.table_groups import SharedPublication, events_of, open_files
from tailrace.pipeline.tables import DataFile
from tailrace.pipeline.typed_columns import Columns, evaluated, misfits, rescued
from tailrace.pipeline.versions import (
    KNOWN,
    NEW,
    located,
    located_intervals,
    of_events,
    of_open,
    versions,
)

_FLAGS = ("stale", "live", "gone", "without_base", "unfit")


def publish_together(
    group: Sequence[SharedPublication], log_snapshot: LogSnapshot, threads: Executor
) -> bool:
    """Brings these tables to the end of the log. Returns False, and does nothing, if their rows are
    too large for this process: few bytes of a file may hold many equal documents."""
    works = [shared.work for shared in group]
    kind = works[0].kind
    columns: Columns = {name: each for work in works for name, each in work.columns.items()}
    made = _versions(works, log_snapshot)
    targets = _among("home", (work.target.name for work in works))
    stays = f"coalesce(there AND {targets}, false)"
    if kind is CURRENT_STATE:
        stays += " AND end IS NULL"
    where = {
        name: _among("home", (work.target.name for work in works if name in work.columns))
        for name in columns
    }
    some = _among("home", (work.target.name for work in works if work.columns))
    counts_rescued = kind.name == log_snapshot.counts_rescued
    wanted = "live AND NOT gone" if counts_rescued else stays
    rows = located(made).where(f"({stays}) OR (stage = {NEW} AND coalesce(number, 0) = 0)")
    rows = evaluated(rows, f"IF({wanted} AND {some}, document, NULL)", columns, where)
    counted = misfits(columns) if counts_rescued else []
    more = [
        *("table", "home", f"{stays} AS kept", f"coalesce(number, 0) = 0 AND stage = {NEW} AS new"),
        *_FLAGS,
        *(f"typed_{at}" for at in range(len(columns))),
        *(test for _, test in counted),
        rescued(columns),
    ]
    collected = _collected(located_intervals(rows, more), log_snapshot)
    if collected is None:
        return False
    names = list(columns)

    def committed(shared: SharedPublication) -> None:
        mine = collected.filter((pc.field("home") == shared.work.target.name) & pc.field("kept"))
        for work in shared.works:
            rows = mine.filter(pc.field("is_current")) if work.kind is CURRENT_STATE else mine
            adds = files.write_arrow(_rows_of(rows, work, names), work.target.snapshot.table)
            replaced = work.kind.open_files(work.target.snapshot)
            counts = _counts(collected, work, counted if work is shared.work else [])
            commit(work, log_snapshot, adds, replaced, counts)

    for _ in threads.map(committed, group):
        pass
    return True


def _collected(rows: DataFrame, log_snapshot: LogSnapshot) -> pa.Table | None:
    """The rows; ``None`` if they have more bytes than Spark's driver takes."""
    with spark_files.job_errors(f"{log_snapshot.tables.location}: nothing was committed"):
        try:
            return rows.toArrow()
        except (PySparkException, Py4JError) as error:
            if "spark.driver.maxResultSize" in str(error):
                return None
            raise


def _among(column: str, tables: Iterable[str]) -> str:
    """SQL for whether a column has one of these names, which need no escaping."""
    listed = ", ".join(f"'{name}'" for name in tables)
    return f"{column} IN ({listed})" if listed else "false"


def _rows_of(rows: pa.Table, work: Publication, names: Sequence[str]) -> pa.Table:
    """The rows of a table under the names of its columns, in its types."""
    schema = work.schema.arrow()
    sources = [
        f"typed_{names.index(field.name)}" if field.name in work.columns else field.name
        for field in schema
    ]
    arrays = [
        rows.column(source).cast(field.type) for source, field in zip(sources, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _counts(
    rows: pa.Table, work: Publication, rescued: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """As :func:`tailrace.pipeline.observed_counts.record_of`.

    ``rescued``: which values are counted."""
    name = work.target.name
    new = rows.filter((pc.field("table") == name) & pc.field("new"))
    live = new.filter(pc.field("live"))
    there = rows.filter(
        (pc.field("home") == name) & pc.field("new") & pc.field("live") & ~pc.field("gone")
    )
    counted = {name: _sum(there, test) for name, test in rescued}
    return {
        "events": new.num_rows,
        "duplicates_dropped": _sum(new, "stale"),
        "updates_without_base": _sum(live, "without_base"),
        "set_aside": _sum(live, "unfit"),
        "rescued": {each: count for each, count in counted.items() if count},
    }


def _sum(rows: pa.Table, name: str) -> int:
    return int(pc.sum(rows.column(name)).as_py() or 0)


def _versions(works: Sequence[Publication], log_snapshot: LogSnapshot) -> DataFrame:
    """The versions in all of these tables and their sources."""
    sources = {source.name: source for work in works for source in work.sources}
    events = {each.path: each for work in works for each in events_of(work, log_snapshot)}
    first = min(work.first for work in works)
    parts = _events(list(events.values()), sources, first, log_snapshot)
    parts += _open(works, log_snapshot)
    if not parts:
        log = log_snapshot.log.table
        parts = [of_events(spark_files.read_table(log_snapshot.spark, log, []), NEW)]
    statements = {each for work in works for each in work.statements}
    ways = routes(sources, sorted(statements))
    scopes = {each.partition["scope"] for each in events.values()}
    sequence = reduce(DataFrame.unionAll, parts)
    return versions(
        sequence,
        ways,
        partial=works[0].is_partial,
        shared=len(scopes) > 1,
        deletions=any(work.has_deletions for work in works),
        moves=any(work.has_moves for work in works),
    )


def _events(
    chosen: Sequence[DataFile],
    sources: Mapping[str, TableInput],
    first: int,
    log_snapshot: LogSnapshot,
) -> list[DataFrame]:
    """One scan for each scope. The name of the table, of which a file has none, is computed."""
    by_scope: dict[str, list[DataFile]] = {}
    for file in chosen:
        by_scope.setdefault(file.partition["scope"] or "", []).append(file)
    full = F.concat_ws(".", "database", "collection")
    name: Column = full
    for table in sources:
        if (collection := collection_of(table)) != table:
            name = F.when(full == collection, table).otherwise(name)
    parts = []
    for scope, some in by_scope.items():
        rows = spark_files.read(log_snapshot.spark, log_snapshot.log.table, some)
        rows = rows.withColumns({"scope": F.lit(scope), "table": name})
        rows = rows.withColumn("new", _is_new(scope, sources))
        rows = rows.where(F.col("new") | (F.col("position") >= first))
        parts.append(of_events(rows, f"IF(new, {NEW}, {KNOWN})"))
    return parts


def _is_new(scope: str, sources: Mapping[str, TableInput]) -> Column:
    """Whether an event is after what its table has."""
    tables: dict[int, list[str]] = {}
    for source in sources.values():
        tables.setdefault(source.through.get(scope, -1), []).append(source.name)
    found = F.lit(False)
    for through, names in tables.items():
        found = found | (F.col("table").isin(names) & (F.col("segment") > through))
    return found


def _open(works: Sequence[Publication], log_snapshot: LogSnapshot) -> list[DataFrame]:
    """One scan of the open versions. The name of the table is a part of the file's path."""
    kind, named_files = works[0].kind, open_files(works)
    if not named_files:
        return []
    above = replace(works[0].target.snapshot.table, name=kind.name, schema=kind.schema)
    chosen = [replace(each, path=f"{name}/{each.path}") for name, each in named_files]
    rows = spark_files.read(log_snapshot.spark, above, chosen)
    pattern = rf"^.*/{kind.name}/([^/]+)/"
    name = F.url_decode(F.regexp_extract(F.col("_metadata.file_path"), pattern, 1))
    return [of_open(rows.withColumn("home_table", name), "home_table")]
