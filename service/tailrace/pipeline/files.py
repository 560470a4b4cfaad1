"""Reads and writes Parquet files of tables with Spark."""

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial, reduce
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JError
from pyarrow import fs, parquet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what all of Spark's users call it
from pyspark.sql.types import StructType

from tailrace.errors import PipelineRefused, SegmentUnreadable, describe
from tailrace.pipeline import bounds
from tailrace.pipeline.location import Location
from tailrace.pipeline.partition_files import NewFiles, hint, writing
from tailrace.pipeline.tables import DataFile, Table

_READERS = 8

_FILE_BYTES = 32 * 2**20
_FILE_ROWS = 500_000
"""The intended size of a file. Only one core writes it, however well its rows compress."""

_FEW_VALUES = ("operation", "database", "collection", "image")
"""Columns that this process keeps as numbers of their distinct values."""
_RAISED = re.compile(r"^tailrace\.errors\.(SegmentUnreadable|PipelineRefused): (.*)", re.MULTILINE)
"""An error of ours that a Python worker has raised."""
_CAUSE = re.compile(r"Caused by: ([^\n]+)")


def read(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> DataFrame:
    """The rows in some files of a table, without its partition columns."""
    stored = StructType([each for each in table.schema if each.name not in table.partition_by])
    if not files:
        return spark.createDataFrame([], stored)
    return scan(spark, stored, [table.location / each.path for each in files], table)


def scan(
    spark: SparkSession, schema: StructType, locations: Iterable[Location], table: Table
) -> DataFrame:
    """The rows in these files, for a commit to ``table``. Spark asks the storage for each file."""
    with job_errors(f"{table.location}: nothing was committed"):
        return spark.read.schema(schema).parquet(*(location.spark for location in locations))


def quoted(schema: StructType) -> list[str]:
    """The names of the columns for ``select``: a name may have a dot."""
    return [f"`{name}`" for name in schema.names]


def read_table(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> DataFrame:
    """The rows in some files of a table, with its partition columns."""
    partitions: dict[tuple[str | None, ...], list[DataFile]] = {}
    for file in files:
        partitions.setdefault(tuple(map(file.partition.get, table.partition_by)), []).append(file)
    if not partitions:
        return spark.createDataFrame([], table.schema)
    parts = []
    for values, part in partitions.items():
        constants = {
            name: F.lit(value).cast(table.schema[name].dataType)
            for name, value in zip(table.partition_by, values, strict=True)
        }
        rows = read(spark, table, part).withColumns(constants)
        parts.append(rows.select(*quoted(table.schema)))
    return reduce(DataFrame.unionAll, parts)


def read_here(
    table: Table, files: Sequence[DataFile], columns: Sequence[str]
) -> Iterator[tuple[DataFile, pa.Table]]:
    """Each file with some of its columns, in this process: Spark would need a job for them.

    Raises :class:`PipelineRefused`.
    """
    with ThreadPoolExecutor(_READERS) as readers:
        for at in range(0, len(files), _READERS):
            some = files[at : at + _READERS]
            contents = readers.map(partial(_columns_of, table, columns=columns), some)
            yield from zip(some, contents, strict=True)


def _columns_of(table: Table, file: DataFile, columns: Sequence[str]) -> pa.Table:
    location = table.location / file.path
    with parquet_file(location, PipelineRefused, read_dictionary=[*_FEW_VALUES]) as reader:
        return reader.read([*columns])


@contextmanager
def parquet_file(
    location: Location, unreadable: type[Exception], **options: Any
) -> Iterator[parquet.ParquetFile]:
    """A file that this process reads. Raises ``unreadable`` with one line where it cannot."""
    try:
        with location.files.open_input_file(location.path) as source:
            yield parquet.ParquetFile(source, page_checksum_verification=True, **options)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(
            f"{location}: cannot be read: {describe(error)}; nothing was committed"
        ) from error


def count_for(read: Sequence[DataFile]) -> int:
    """How many files should hold the rows of these files."""
    size, rows = sum(each.size for each in read), sum(each.rows for each in read)
    return max(1, size // _FILE_BYTES, rows // _FILE_ROWS)


def is_small(file: DataFile) -> bool:
    """Whether the file has less than half of what it should have."""
    return file.size < _FILE_BYTES // 2 and file.rows < _FILE_ROWS // 2


def write(rows: DataFrame, table: Table) -> list[DataFile]:
    """Writes rows to files in a new directory. No commit refers to these files yet.

    After an error the directory is removed. That files lack rows, or have them twice, is an error:
    a listing of the store was not up to date, or a worker was lost while it gave files their names.
    """
    batch = uuid.uuid4().hex
    folder = table.location / batch
    table.location.make()
    written = Observation()
    rows = rows.observe(written, F.count(F.lit(1)).alias("rows"))
    try:
        with job_errors(f"{table.location}: nothing was committed"):
            rows.write.partitionBy(*table.partition_by).parquet(folder.written)
        written_files = [(path, info) for path, info in folder.below() if path.endswith(".parquet")]
        with ThreadPoolExecutor(_READERS) as readers:
            described = list(
                readers.map(lambda each: _describe(folder, batch, each, table), written_files)
            )
        count, expected = sum(each.rows for each in described), written.get["rows"] or 0
        if count != expected:
            raise PipelineRefused(
                f"{folder}: Spark wrote {expected} rows, and {count} are in its files. Nothing was "
                "committed: run again"
            )
    except BaseException:
        remove_tree(folder)
        raise
    return [each for each in described if each.rows]


def write_arrow(rows: pa.Table, table: Table) -> list[DataFile]:
    """As :func:`write`, for few rows that this process has: a file for each partition."""
    folder = uuid.uuid4().hex
    try:
        with writing(new_files(table, folder)) as files:
            files.write(rows)
    except BaseException:
        remove_tree(table.location / folder)
        raise
    return files.written


def new_files(table: Table, folder: str) -> NewFiles:
    return NewFiles(table.location, folder, table.partition_by, table.bounded)


def remove_tree(location: Location) -> None:
    """Removes a directory. If that fails, vacuum removes it later."""
    with suppress(OSError):
        location.files.delete_dir(location.path)


@contextmanager
def job_errors(doing: str) -> Iterator[None]:
    """Reports a failed Spark job in one line.

    Raises what a Python worker has raised, else :class:`PipelineRefused`.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if raised := _RAISED.search(text):
            kind = SegmentUnreadable if raised[1] == SegmentUnreadable.__name__ else PipelineRefused
            raise kind(raised[2]) from error
        causes = _CAUSE.findall(text)
        cause = causes[-1] if causes else text.strip().partition("\n")[0]
        raise PipelineRefused(f"{doing}: Spark failed: {cause[:300]}{hint(text)}") from error


def _describe(
    location: Location, batch: str, found: tuple[str, fs.FileInfo], table: Table
) -> DataFile:
    path, info = found
    with location.files.open_input_file(info.path) as source:
        metadata = parquet.read_metadata(source)
    values = dict(part.split("=", 1) for part in path.split("/")[:-1])
    partition = {name: unquote(values[name]) for name in table.partition_by}
    its_bounds = bounds.of_footer(metadata) if table.bounded else ()
    return DataFile(f"{batch}/{path}", info.size, metadata.num_rows, partition, *its_bounds)
