"""Maintenance: compaction, vacuum, and removal of segments that are in the tables.

A compaction is one commit that changes no data. It is safe beside a writer: if two commits remove
the same file, the second one is refused.
"""

import re
import time

from tailrace.config.pipeline import PipelineSettings
from tailrace.pipeline import files
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.location import Location
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE
from tailrace.pipeline.quality import quality_table
from tailrace.pipeline.segments import LandedLake
from tailrace.pipeline.tables import Table, TableStore, TableVersion

_TARGET_BYTES = 32 * 2**20

_MANY = 8
"""A table with this many small files is compacted; a lower limit would rewrite them too often."""

_COMMITS = 1000
"""A table with more commits in its log keeps those of the last :data:`_COMMIT_HOURS`: each time
that a table is opened, its log is listed, which costs 20 microseconds a commit."""

_COMMIT_HOURS = 1

_BATCH = re.compile(r"[0-9a-f]{32}")
"""A directory that :func:`tailrace.pipeline.spark_files.write` created."""

_STAGED = re.compile(r"\.parquet#\d+")
"""A file that a killed compaction left unfinished: delta-rs does not see it."""


def maintain(lake: LandedLake, tables: TableStore, settings: PipelineSettings) -> dict[str, int]:
    """Compacts and vacuums every table, and removes old segments if that is configured."""
    every = _tables(lake, tables)
    hours = settings.segment_retention_hours
    for table in every:
        table.load().limit_log(_COMMITS, _COMMIT_HOURS)
    return {
        "compacted_files": sum(compact(table.load()) for table in every),
        "removed_files": sum(vacuum(table, settings.vacuum_hours) for table in every),
        "removed_segments": 0 if hours is None else remove_segments(lake, tables, hours),
    }


def compact(snapshot: TableVersion, many: int = _MANY) -> int:
    """Merges small files if there are at least ``many``; returns how many it replaced."""
    if sum(each.size < _TARGET_BYTES // 2 for each in snapshot.files) < many:
        return 0
    return snapshot.compact(_TARGET_BYTES)


def vacuum(table: Table, hours: float) -> int:
    """Removes files that no version of the last ``hours`` needs, and the files of killed runs."""
    removed = table.load().vacuum(hours)
    _remove_unfinished(table, hours)
    return removed


def remove_segments(lake: LandedLake, tables: TableStore, hours: float) -> int:
    """Removes segments that are older and in the log, but never the newest one of a scope."""
    log = changes_table(tables, lake.identity).load()
    counted = quality_table(tables, lake.identity).load()
    removed = 0
    for scope in lake.scopes():
        through = min(log.segment(scope), counted.segment(scope))
        for number in lake.numbers(scope)[:-1]:
            file = lake.file(scope, number)
            if number > through or not _is_older(file, hours):
                break
            file.files.delete_file(file.path)
            removed += 1
    return removed


def _remove_unfinished(table: Table, hours: float) -> None:
    """Removes what vacuum does not see: the staged files of compactions, and directories of batches
    without a finished file."""
    for path, _ in table.location.below():
        location = table.location / path
        if _STAGED.search(path) and _is_older(location, hours):
            location.files.delete_file(location.path)
    used = {each.path.partition("/")[0] for each in table.load().files}
    for name, is_directory in table.location.names():
        directory = table.location / name
        if (
            is_directory
            and name not in used
            and _BATCH.fullmatch(name)
            and _is_older(directory, hours)
        ):
            paths = (f"/{path}" for path, _ in directory.below())
            if not any(path.endswith(".parquet") and "/_" not in path for path in paths):
                files.remove_tree(directory)


def _is_older(location: Location, hours: float) -> bool:
    """Whether a location is older. Without a time, a directory counts as older, a file does not."""
    (info,) = location.files.get_file_info([location.path])
    if info.mtime_ns is None:
        return not info.is_file
    return bool(info.mtime_ns / 1e9 <= time.time() - hours * 3600)


def _tables(lake: LandedLake, tables: TableStore) -> list[Table]:
    identity = lake.identity
    found = [changes_table(tables, identity), quality_table(tables, identity)]
    for kind in (CURRENT_STATE, HISTORY_STATE):
        found += [kind.table(tables, identity, name) for name in tables.names(kind.name)]
    return found
