"""Keeping tables small in files: compaction, files that no version needs, segments long read.

All of it is safe beside a writer: compaction removes only files that it has read and changes no
data, and a writer's new files are too young to be taken for orphans.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tailrace.errors import PipelineRefused, TablesFenced, describe
from tailrace.pipeline import files
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.delta import DataFile, Table
from tailrace.pipeline.landed import CURRENT_STATE, HISTORY_STATE
from tailrace.pipeline.location import Location
from tailrace.pipeline.quality import quality_table
from tailrace.pipeline.segments import Lake

_SMALL_BYTES = 16 * 2**20
_MANY = 8
"""So many small files of one partition are worth being one."""


@dataclass(slots=True)
class Maintained:
    """What was done."""

    compacted: int = 0
    vacuumed: int = 0
    segments: int = 0


def maintain(
    spark: SparkSession,
    lake: Lake,
    tables: Location,
    *,
    vacuum_hours: float = 168.0,
    segment_retention_hours: float | None = None,
) -> Maintained:
    """Compacts, vacuums, and removes segments where that is wanted."""
    done = Maintained()
    for table in _tables(lake, tables):
        snapshot = table.load()
        if snapshot.delta is None:
            continue
        done.compacted += compact(spark, table)
        done.vacuumed += vacuum(table, vacuum_hours)
    if segment_retention_hours is not None:
        done.segments = forget_segments(lake, tables, segment_retention_hours)
    return done


def compact(spark: SparkSession, table: Table) -> int:
    """Makes one file of the small ones of each partition that has many; returns how many it read.

    Another writer's removal of one of them wins: nothing is done then.
    """
    snapshot = table.load()
    groups: dict[tuple[str | None, ...], list[DataFile]] = {}
    for each in snapshot.files:
        if each.size < _SMALL_BYTES:
            values = tuple(each.partition[name] for name in table.partition_by)
            groups.setdefault(values, []).append(each)
    stored = StructType([each for each in table.schema if each.name not in table.partition_by])
    read = 0
    for values, small in groups.items():
        if len(small) < _MANY:
            continue
        rows = files.read(spark, table.location, small, stored)
        rows = rows.select(
            "*",
            *(
                F.lit(value).cast(table.schema[name].dataType).alias(name)
                for name, value in zip(table.partition_by, values, strict=True)
            ),
        )
        adds = files.write(rows.select(*table.schema.names).coalesce(1), table)
        try:
            table.load().commit(adds, small, changes_data=False)
        except TablesFenced:
            for each in adds:
                (table.location / each.path).remove()
            continue
        read += len(small)
    return read


def vacuum(table: Table, hours: float) -> int:
    """Removes files that no version of the last ``hours`` needs, and those that none ever knew.

    The latter are what a run leaves that was killed. ``hours`` must be longer than any batch and
    any query take.
    """
    delta = table.load().delta
    if delta is None:
        return 0
    try:
        removed = delta.vacuum(
            retention_hours=max(1, round(hours)) if hours else 0,
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
        )
    except (DeltaError, CommitFailedError, OSError) as error:
        raise PipelineRefused(f"{table.location}: vacuum failed: {describe(error)}") from error
    _remove_empty(table, hours)
    return len(removed)


def forget_segments(lake: Lake, tables: Location, hours: float) -> int:
    """Removes segments that are in the log and older than that; never the newest of a scope.

    The tables cannot be rebuilt from segments any more then.
    """
    log = changes_table(tables, lake.identity).load()
    counted = quality_table(tables, lake.identity).load()
    before = time.time() - hours * 3600
    removed = 0
    for scope in lake.scopes():
        numbers = lake.numbers(scope)
        through = min(log.segment(scope), counted.segment(scope))
        for number in numbers[:-1]:
            file = lake.file(scope, number)
            (info,) = file.files.get_file_info([file.path])
            if number > through or info.mtime_ns is None or info.mtime_ns / 1e9 > before:
                break
            file.remove()
            removed += 1
    return removed


def _remove_empty(table: Table, hours: float) -> None:
    """Directories of batches in which nothing is left, or nothing was ever finished."""
    used = {each.path.partition("/")[0] for each in table.load().files}
    before = time.time() - hours * 3600
    for name, is_directory in table.location.names():
        if not is_directory or name in used or len(name) != 32:
            continue
        place = table.location / name
        (info,) = place.files.get_file_info([place.path])
        old = info.mtime_ns is None or info.mtime_ns / 1e9 <= before
        if old and not any(
            path.endswith(".parquet") and "/_" not in f"/{path}" for path, _ in place.below()
        ):
            files.remove_tree(place)


def _tables(lake: Lake, tables: Location) -> list[Table]:
    identity = lake.identity
    found = [changes_table(tables, identity), quality_table(tables, identity)]
    for kind in (CURRENT_STATE, HISTORY_STATE):
        names = (name for name, _ in (tables / kind.name).names())
        found += [kind.table(tables, identity, name) for name in names]
    return found
