"""Reads and writes Parquet files of tables with Spark."""

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial, reduce
from operator import and_
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from py4j.protocol import Py4JError
from pyarrow import compute as pc
from pyarrow import fs, parquet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what all of Spark's users call it
from pyspark.sql.types import StructType

from tailrace.errors import PipelineRefused, SegmentUnreadable, describe
from tailrace.pipeline import bounds
from tailrace.pipeline.location import Location
from tailrace.pipeline.tables import DataFile, Table

_READERS = 8

_FILE_BYTES = 32 * 2**20
_FILE_ROWS = 500_000
"""The intended size of a file. Only one core writes it, however well its rows compress."""

_FEW_VALUES = ("operation", "database", "collection", "image")
"""Columns that this process keeps as numbers of their distinct values."""
_MALFORMED = re.compile(r"(scope \S+, segment \d+, ordinal \d+: malformed BSON[^\n]*)")
_FILE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?/[^\s,\]]+\.parquet")
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
    batch = uuid.uuid4().hex
    written = []
    try:
        for partition, part in _partitions(rows, table.partition_by):
            # Some readers take the values from the names of directories, as Spark writes them.
            names = [f"{name}={quote(value, safe='!')}" for name, value in partition.items()]
            above = "/".join([batch, *names])
            path = f"{above}/part-{batch}.parquet"
            file = table.location / path
            (table.location / above).make()
            with file.files.open_output_stream(file.path) as stream:
                parquet.write_table(
                    part, stream, compression="zstd", compression_level=1, write_page_checksum=True
                )
            (info,) = file.files.get_file_info([file.path])
            its_bounds = bounds.of_rows(part) if table.bounded else ()
            written.append(DataFile(path, info.size, part.num_rows, partition, *its_bounds))
    except OSError as error:
        remove_tree(table.location / batch)
        why = describe(error)
        raise PipelineRefused(
            f"{table.location}: nothing was committed: {why}{_hint(why)}"
        ) from error
    return written


def _partitions(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[dict[str, str], pa.Table]]:
    """The rows by the values of these columns, which the files do not have; none without rows."""
    if not names:
        if rows.num_rows:
            yield {}, rows
        return
    for values in rows.group_by([*names]).aggregate([]).to_pylist():
        tests = [pc.field(name) == value for name, value in values.items()]
        part = rows.filter(reduce(and_, tests)).drop_columns([*names])
        yield {name: _partition_text(value) for name, value in values.items()}, part


def _partition_text(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()


def remove_tree(location: Location) -> None:
    """Removes a directory. If that fails, vacuum removes it later."""
    with suppress(OSError):
        location.files.delete_dir(location.path)


@contextmanager
def job_errors(doing: str) -> Iterator[None]:
    """Reports a failed Spark job in one line.

    Raises :class:`SegmentUnreadable` if a segment is the cause, else :class:`PipelineRefused`.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        malformed = _MALFORMED.search(text)
        if malformed:
            raise SegmentUnreadable(f"{malformed[1]}; {doing}") from error
        causes = _CAUSE.findall(text)
        cause = causes[-1] if causes else text.strip().partition("\n")[0]
        file = _FILE.search(text)
        if file and "seg-" in file[0]:
            raise SegmentUnreadable(f"{file[0]}: cannot be read: {cause}; {doing}") from error
        raise PipelineRefused(f"{doing}: Spark failed: {cause[:300]}{_hint(text)}") from error


def _hint(reason: str) -> str:
    return ". Make room, then run again" if "No space left" in reason else ""


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
