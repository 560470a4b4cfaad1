"""Parquet files of tables, as Spark reads and writes them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyarrow import fs, parquet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.errors import PipelineRefused, SegmentUnreadable
from tailrace.pipeline.delta import DataFile, Table
from tailrace.pipeline.location import Location

_READERS = 8
_MALFORMED = re.compile(r"(scope \S+, segment \d+, ordinal \d+: malformed BSON[^\n]*)")
_BATCH = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?/[^\s,\]]+\.parquet")
_CAUSE = re.compile(r"Caused by: ([^\n]+)")


def read(
    spark: SparkSession, location: Location, files: Sequence[DataFile], schema: StructType
) -> DataFrame:
    """The rows of some of a table's files, without its partition columns."""
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*((location / each.path).spark for each in files))


def write(rows: DataFrame, table: Table) -> list[DataFile]:
    """Writes rows as files that no commit knows yet, in a directory of their own.

    Raises :class:`PipelineRefused` where Spark could not, :class:`SegmentUnreadable` where a
    segment was at fault; what was written until then is removed.
    """
    batch = uuid.uuid4().hex
    place = table.location / batch
    table.location.make()
    try:
        with job_errors(f"{table.location}: nothing was committed"):
            writer = rows.write
            if table.partition_by:
                writer = writer.partitionBy(*table.partition_by)
            writer.parquet(place.written)
        found = [(path, info) for path, info in place.below() if path.endswith(".parquet")]
        with ThreadPoolExecutor(_READERS) as readers:
            described = list(readers.map(lambda each: _describe(place, batch, each, table), found))
    except BaseException:
        remove_tree(place)
        raise
    return [each for each in described if each.rows]


def is_batch(name: str) -> bool:
    """Whether a directory is one that :func:`write` made."""
    return _BATCH.fullmatch(name) is not None


def remove_tree(place: Location) -> None:
    """Removes a directory; what cannot be removed is left to vacuum."""
    with suppress(OSError):
        place.files.delete_dir(place.path)


@contextmanager
def job_errors(doing: str) -> Iterator[None]:
    """What a failed job means, in one line."""
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
        hint = ". Make room, then run again" if "No space left" in text else ""
        raise PipelineRefused(f"{doing}: Spark failed: {cause[:300]}{hint}") from error


def _describe(
    place: Location, batch: str, found: tuple[str, fs.FileInfo], table: Table
) -> DataFile:
    path, info = found
    with place.files.open_input_file(info.path) as source:
        metadata = parquet.read_metadata(source)
    values = dict(part.split("=", 1) for part in path.split("/")[:-1])
    partition = {name: unquote(values[name]) for name in table.partition_by}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    names = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    for name in table.statistics:
        columns = [
            metadata.row_group(group).column(names[name]).statistics
            for group in range(metadata.num_row_groups)
        ]
        if not columns or any(each is None or not each.has_null_count for each in columns):
            continue
        nulls[name] = sum(each.null_count for each in columns)
        bounded = [each for each in columns if each.has_min_max]
        if bounded and len(bounded) == sum(each.num_values > 0 for each in columns):
            low[name] = min(each.min for each in bounded)
            high[name] = max(each.max for each in bounded)
    return DataFile(f"{batch}/{path}", info.size, metadata.num_rows, partition, low, high, nulls)
