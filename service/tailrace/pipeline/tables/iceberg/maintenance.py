"""Compaction, expiry of snapshots, and removal of files that no snapshot needs: pyiceberg has only
the second one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs, parquet

from tailrace.errors import PipelineRefused, TablesFenced, describe
from tailrace.pipeline.tables.iceberg.commits import add_snapshot, committed
from tailrace.pipeline.tables.iceberg.data_files import plain, rows_of
from tailrace.pipeline.tables.iceberg.failures import LOST_RACES, catalog_errors
from tailrace.pipeline.tables.port import DataFile, Table
from tailrace.pipeline.tables.row_groups import joined, row_groups

if TYPE_CHECKING:
    from tailrace.pipeline.tables.iceberg.version import IcebergVersion

_ROWS = 1000
"""Rows that are read at once."""

_ROW_GROUP_BYTES = 64 * 2**20
"""The size of a row group, in memory."""


def compact(version: IcebergVersion, target_bytes: int) -> int:
    """As :meth:`tailrace.pipeline.tables.port.TableVersion.compact`."""
    groups = list(_groups(version.files, target_bytes))
    replaced = [file for group in groups for file in group]
    if not replaced:
        return 0
    merged: list[DataFile] = []
    try:
        for group in groups:
            merged.append(_merged(version.table, group))
        paths = {each.path for each in replaced}
        committed(
            version,
            lambda newest, begun: add_snapshot(
                newest, begun, {}, merged, replaced, compaction=True
            ),
            lambda newest: paths <= {each.path for each in newest.files},
        )
    except TablesFenced:  # the next maintenance tries again
        _remove(version.table, merged)
        return 0
    except (OSError, pa.ArrowException) as error:
        _remove(version.table, merged)
        raise PipelineRefused(
            f"{version.table.location}: compaction failed: {describe(error)}"
        ) from error
    return len(replaced)


def _groups(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Small files of one partition that together have the target size; at least two."""
    partitions: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in files:
        if file.size < target_bytes // 2:
            partitions.setdefault(tuple(file.partition.items()), []).append(file)
    for small in partitions.values():
        group: list[DataFile] = []
        for file in small:
            if group and sum(each.size for each in group) + file.size > target_bytes:
                if len(group) > 1:
                    yield group
                group = []
            group.append(file)
        if len(group) > 1:
            yield group


def _merged(table: Table, group: Sequence[DataFile]) -> DataFile:
    """A new file with the rows of these."""
    batch = uuid.uuid4().hex
    above = "/".join([batch, *group[0].path.split("/")[1:-1]])
    path = f"{above}/part-{batch}.parquet"
    (table.location / above).make()
    target = table.location / path
    rows = rows_of(table, group)
    options: Any = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
    with (
        target.files.open_output_stream(target.path) as stream,
        parquet.ParquetWriter(stream, rows.schema, **options) as writer,
    ):
        batches = rows.to_batches(batch_size=_ROWS, batch_readahead=1, fragment_readahead=1)
        for row_group in row_groups(batches, _ROW_GROUP_BYTES):
            writer.write_table(row_group)
    (info,) = target.files.get_file_info([target.path])
    count = sum(each.rows for each in group)
    bounds = joined([(each.rows, (each.low, each.high, each.nulls)) for each in group])
    return DataFile(path, info.size, count, group[0].partition, *bounds)


def limit_snapshots(version: IcebergVersion, snapshots: int, hours: float) -> bool:
    """As :meth:`tailrace.pipeline.tables.port.TableVersion.limit_log`."""
    if version.stored is None or len(version.stored.metadata.snapshots) <= snapshots:
        return False
    _expire(version, hours)
    return True


def _expire(version: IcebergVersion, hours: float) -> None:
    """Forgets snapshots that are older, but those that a branch or a tag names."""
    if version.stored is None:
        return
    before = datetime.now(UTC) - timedelta(hours=hours)
    refs = {ref.snapshot_id for ref in version.stored.metadata.refs.values()}
    old = [
        each.snapshot_id
        for each in version.stored.metadata.snapshots
        if each.timestamp_ms < before.timestamp() * 1000 and each.snapshot_id not in refs
    ]
    if not old:
        return
    with catalog_errors(f"{version.table.location}: its snapshots cannot be removed"):
        try:
            version.stored.maintenance.expire_snapshots().by_ids(old).commit()
        except LOST_RACES:  # the next maintenance tries again
            return


def vacuum(version: IcebergVersion, hours: float) -> int:
    """As :meth:`tailrace.pipeline.tables.port.TableVersion.vacuum`."""
    if version.stored is None:
        return 0
    _expire(version, hours)
    where = version.table.location
    # What there is comes first: a file that is committed meanwhile is then among the needed ones.
    there = where.below()
    before = time.time() - hours * 3600
    with catalog_errors(f"{where}: nothing was removed"):
        needed = set(_needed(version.latest()))
    removed = 0
    try:
        for path, info in there:
            if f"{plain(where.uri)}/{path}" not in needed and _is_older(info, before):
                where.files.delete_file(info.path)
                removed += 1
    except OSError as error:
        raise PipelineRefused(f"{where}: vacuum failed: {describe(error)}") from error
    return removed


def _is_older(info: fs.FileInfo, before: float) -> bool:
    return info.mtime_ns is not None and info.mtime_ns / 1e9 <= before


def _needed(version: IcebergVersion) -> Iterator[str]:
    """Every file that the table or a snapshot of it names."""
    stored = version.stored
    if stored is None:
        return
    metadata = stored.metadata
    names: list[str] = [stored.metadata_location]
    names += [each.metadata_file for each in metadata.metadata_log]
    names += [each.statistics_path for each in metadata.statistics]
    names += [each.statistics_path for each in metadata.partition_statistics]
    manifests: set[str] = set()
    for snapshot in metadata.snapshots:
        names.append(snapshot.manifest_list)
        for manifest in snapshot.manifests(stored.io):
            if manifest.manifest_path not in manifests:
                manifests.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(stored.io)
                names += [entry.data_file.file_path for entry in entries]
    yield from map(plain, [*names, *manifests])


def _remove(table: Table, files: Iterable[DataFile]) -> None:
    """Removes files of which no commit knows. If that fails, vacuum removes them later."""
    for file in files:
        location = table.location / file.path
        try:
            location.files.delete_file(location.path)
        except OSError:
            return
