"""Maintenance: compaction, vacuum, and removal of segments that the tables hold.

delta-rs compacts and vacuums. Compaction is one commit per partition that changes no data: after a
crash the table is as it was, and the unfinished files are vacuumed. It is safe beside a writer: of
two commits that remove the same file the second is refused.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from deltalake import ColumnProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from tailrace.errors import PipelineRefused, describe
from tailrace.pipeline import files
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.delta import Snapshot, Table
from tailrace.pipeline.location import Location
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE
from tailrace.pipeline.quality import quality_table
from tailrace.pipeline.segments import LandedLake

_TARGET_BYTES = 32 * 2**20
_SMALL_BYTES = _TARGET_BYTES // 2
_MANY = 8
"""So many small files of a partition are compacted: fewer would be rewritten again and again."""

_ATTEMPTS = 2
"""Of a compaction whose commit another writer's has overtaken."""


@dataclass(slots=True)
class Maintained:
    """What was done."""

    compacted: int = 0
    vacuumed: int = 0
    segments: int = 0


def maintain(
    lake: LandedLake,
    tables: Location,
    *,
    vacuum_hours: float = 168.0,
    segment_retention_hours: float | None = None,
) -> Maintained:
    """Compacts and vacuums every table, and removes segments where that is wanted."""
    done = Maintained()
    for table in _tables(lake, tables):
        done.compacted += compact(table.load())
        done.vacuumed += vacuum(table, vacuum_hours)
    if segment_retention_hours is not None:
        done.segments = remove_segments(lake, tables, segment_retention_hours)
    return done


def compact(snapshot: Snapshot, many: int = _MANY) -> int:
    """Merges the files of each partition with ``many`` small ones; returns how many it replaced.

    A partition that another writer keeps changing is left as it is.
    """
    delta, table = snapshot.delta, snapshot.table
    if delta is None:
        return 0
    small = Counter(
        tuple(each.partition.items()) for each in snapshot.files if each.size < _SMALL_BYTES
    )
    partitions = (each for each, count in small.items() if count >= many)
    return sum(_compact_partition(delta, table, dict(each)) for each in partitions)


def _compact_partition(delta: DeltaTable, table: Table, partition: Mapping[str, str | None]) -> int:
    for _ in range(_ATTEMPTS):
        try:
            done = delta.optimize.compact(
                partition_filters=[(name, "=", value or "") for name, value in partition.items()]
                or None,
                target_size=_TARGET_BYTES,
                writer_properties=_writer_properties(table),
            )
            return int(done["numFilesRemoved"])
        except CommitFailedError:  # another writer was quicker
            delta.update_incremental()
        except (DeltaError, OSError) as error:
            raise PipelineRefused(
                f"{table.location}: compaction failed: {describe(error)}"
            ) from error
    return 0


def _writer_properties(table: Table) -> WriterProperties:
    """As Spark writes them: zstd, and statistics of the columns by which files are chosen."""
    return WriterProperties(
        compression="ZSTD",
        compression_level=1,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={
            name: ColumnProperties(statistics_enabled="CHUNK") for name in table.statistics
        },
    )


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


def remove_segments(lake: LandedLake, tables: Location, hours: float) -> int:
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
    """Removes directories of batches in which nothing is left, or nothing was ever finished."""
    used = {each.path.partition("/")[0] for each in table.load().files}
    before = time.time() - hours * 3600
    for name, is_directory in table.location.names():
        if not is_directory or name in used or not files.is_batch(name):
            continue
        place = table.location / name
        (info,) = place.files.get_file_info([place.path])
        old = info.mtime_ns is None or info.mtime_ns / 1e9 <= before
        if old and not any(
            path.endswith(".parquet") and "/_" not in f"/{path}" for path, _ in place.below()
        ):
            files.remove_tree(place)


def _tables(lake: LandedLake, tables: Location) -> list[Table]:
    identity = lake.identity
    found = [changes_table(tables, identity), quality_table(tables, identity)]
    for kind in (CURRENT_STATE, HISTORY_STATE):
        names = (name for name, _ in (tables / kind.name).names())
        found += [kind.table(tables, identity, name) for name in names]
    return found
