"""Reads and writes Parquet files of tables with Spark."""

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what all of Spark's users call it
from pyspark.sql.types import StructType

from tailrace.errors import PipelineRefused, SegmentUnreadable
from tailrace.pipeline.files import files_below, remove_tree
from tailrace.pipeline.location import Location
from tailrace.pipeline.partition_files import hint
from tailrace.pipeline.table_schema import TableSchema
from tailrace.pipeline.tables import DataFile, Table

_RAISED = re.compile(r"^tailrace\.errors\.(SegmentUnreadable|PipelineRefused): (.*)", re.MULTILINE)
"""An error of ours that a Python worker has raised."""
_CAUSE = re.compile(r"Caused by: ([^\n]+)")


def read(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> DataFrame:
    """The rows in some files of a table, without its partition columns."""
    stored = TableSchema.of(each for each in table.schema if each.name not in table.partition_by)
    if not files:
        return spark.createDataFrame([], spark_schema(stored))
    return scan(spark, stored, [table.location / each.path for each in files], table)


def scan(
    spark: SparkSession, schema: TableSchema, locations: Iterable[Location], table: Table
) -> DataFrame:
    """The rows in these files, for a commit to ``table``. Spark asks the storage for each file."""
    with job_errors(f"{table.location}: nothing was committed"):
        return spark.read.schema(spark_schema(schema)).parquet(*(each.spark for each in locations))


def spark_schema(schema: TableSchema) -> StructType:
    return StructType.fromJson(schema.json())


def quoted(schema: TableSchema) -> list[str]:
    """The names of the columns for ``select``: a name may have a dot."""
    return [f"`{name}`" for name in schema.names]


def read_table(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> DataFrame:
    """The rows in some files of a table, with its partition columns."""
    partitions: dict[tuple[str | None, ...], list[DataFile]] = {}
    for file in files:
        partitions.setdefault(tuple(map(file.partition.get, table.partition_by)), []).append(file)
    if not partitions:
        return spark.createDataFrame([], spark_schema(table.schema))
    parts, types = [], spark_schema(table.schema)
    for values, part in partitions.items():
        constants = {
            name: F.lit(value).cast(types[name].dataType)
            for name, value in zip(table.partition_by, values, strict=True)
        }
        rows = read(spark, table, part).withColumns(constants)
        parts.append(rows.select(*quoted(table.schema)))
    return reduce(DataFrame.unionAll, parts)


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
        found = files_below(table, batch)
        count, expected = sum(each.rows for each in found), written.get["rows"] or 0
        if count != expected:
            raise PipelineRefused(
                f"{folder}: Spark wrote {expected} rows, and {count} are in its files. Nothing was "
                "committed: run again"
            )
    except BaseException:
        remove_tree(folder)
        raise
    return [each for each in found if each.rows]


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
