"""The files of a table as manifests name them (https://iceberg.apache.org/spec/#manifests)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.dataset as ds
from pyiceberg import conversions, manifest
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, PrimitiveType

from tailrace.errors import PipelineRefused
from tailrace.pipeline.table_schema import TableSchema
from tailrace.pipeline.tables.port import DataFile, Table


def manifest_file(
    file: DataFile, root: str, schema: Schema, spec: PartitionSpec
) -> manifest.DataFile:
    """A file that Spark or this process wrote below ``root``, for a manifest."""
    ids = {field.name: field for field in schema.fields}
    partition = Record(
        *(_stored(file.partition[each.name], ids[each.name].field_type) for each in spec.fields)
    )
    made = manifest.DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{root}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=file.rows,
        file_size_in_bytes=file.size,
        null_value_counts={ids[name].field_id: count for name, count in file.nulls.items()},
        lower_bounds=_bytes(file.low, schema),
        upper_bounds=_bytes(file.high, schema),
    )
    made.spec_id = spec.spec_id
    return made


def data_file(found: manifest.DataFile, root: str, schema: Schema, spec: PartitionSpec) -> DataFile:
    """Raises :class:`PipelineRefused` if the file is somewhere else."""
    path = plain(found.file_path)
    if not path.startswith(f"{root}/"):
        raise PipelineRefused(
            f"{found.file_path}: is not below {root}, as all files of the table must be"
        )
    names = {field.field_id: field for field in schema.fields}
    values = (found.partition[at] for at in range(len(spec.fields)))
    return DataFile(
        path=path.removeprefix(f"{root}/"),
        size=found.file_size_in_bytes,
        rows=found.record_count,
        partition={
            field.name: str(value).lower() if isinstance(value, bool) else value
            for field, value in zip(spec.fields, values, strict=True)
        },
        low=_values(found.lower_bounds, names),
        high=_values(found.upper_bounds, names),
        nulls={
            names[each].name: count
            for each, count in (found.null_value_counts or {}).items()
            if each in names
        },
    )


def files_of(table: IcebergTable, snapshot: Snapshot | None) -> Iterator[manifest.DataFile]:
    """The files of a snapshot, as its manifests name them.

    Raises :class:`PipelineRefused` if rows of them are deleted by other files.
    """
    for each in snapshot.manifests(table.io) if snapshot else ():
        if each.content == ManifestContent.DELETES:
            raise PipelineRefused(
                f"{table.location()}: another program has deleted rows of this table by files of "
                "deletions, which this pipeline does not write. Drop the table: the next run makes "
                "it again"
            )
        for entry in each.fetch_manifest_entry(table.io):
            yield entry.data_file


def rows_of(table: Table, files: Sequence[DataFile]) -> ds.Dataset:
    """The rows in these files: null in columns that were added later, and without the columns
    that no file has, as those are in the names of directories."""
    stored = (field for field in table.schema if field.name not in table.partition_by)
    checked: Any = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    return ds.dataset(
        [(table.location / each.path).path for each in files],
        TableSchema.of(stored).arrow(),
        format=ds.ParquetFileFormat(default_fragment_scan_options=checked),
        filesystem=table.location.files,
    )


def plain(location: str) -> str:
    """One form of the same location: clients of S3 and of local files write several."""
    location = re.sub(r"^s3[an]://", "s3://", location)
    return re.sub(r"^file:(//)?(?=/)", "", location).rstrip("/")


def _stored(value: str | None, kind: Any) -> Any:
    return value == "true" if isinstance(kind, BooleanType) and value is not None else value


def _bytes(bounds: Mapping[str, Any], schema: Schema) -> dict[int, bytes]:
    found = {}
    for name, value in bounds.items():
        field = schema.find_field(name)
        if isinstance(field.field_type, PrimitiveType):
            found[field.field_id] = conversions.to_bytes(field.field_type, value)
    return found


def _values(bounds: Mapping[int, bytes] | None, names: Mapping[int, Any]) -> dict[str, Any]:
    return {
        names[each].name: conversions.from_bytes(names[each].field_type, value)
        for each, value in (bounds or {}).items()
        if each in names
    }
