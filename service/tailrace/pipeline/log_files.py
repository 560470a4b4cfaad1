"""Makes files of the log from segments, in Spark's Python workers.

A worker reads segments, decodes their events and writes files of the log, a part at a time: rows do
not pass through Java, which would cost more than all of that. A task that is lost or runs twice
leaves files that no commit names, as only the answer of one attempt counts.

A small batch is decoded in this process: a Spark job would cost about a second.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyarrow import compute as pc
from pyspark.sql import SparkSession

from tailrace.errors import SegmentUnreadable
from tailrace.lake.segment import COLUMNS
from tailrace.pipeline import files, spark_files
from tailrace.pipeline.decoding import decode
from tailrace.pipeline.lineage import position_of
from tailrace.pipeline.partition_files import NewFiles, writing
from tailrace.pipeline.schemas import CHANGES, DECODED
from tailrace.pipeline.segments import LandedSegment
from tailrace.pipeline.tables import DataFile, Table
from tailrace.pipeline.tables.row_groups import row_groups

ROWS = 20_000
"""A small batch has no more events."""

_BYTES = 16 * 2**20
"""Nor are its segments larger."""

_FILE_ROWS = 500_000
"""A task makes files of about this many events, if there are as many for each core."""

CHUNK = 500
"""How many events are decoded at once."""

PART_BYTES = 32 * 2**20
"""How much decoded rows a process keeps in memory before it writes them."""


def write(spark: SparkSession, batch: Sequence[LandedSegment], table: Table) -> list[DataFile]:
    """Files with the events of segments, each once; no commit refers to them yet.

    After an error they are removed. Raises :class:`SegmentUnreadable` or :class:`PipelineRefused`.
    """
    segments = [each for each in batch if each.footer.rows]
    rows = sum(each.footer.rows for each in segments)
    folder = uuid.uuid4().hex
    task = partial(_written, place=files.new_files(table, folder))
    try:
        if rows <= ROWS and _size(segments) <= _BYTES:
            return task(segments)
        context = spark.sparkContext
        tasks = min(len(segments), max(context.defaultParallelism, rows // _FILE_ROWS))
        with spark_files.job_errors(f"{table.location}: nothing was committed"):
            return context.parallelize(segments, tasks).mapPartitions(task).collect()
    except BaseException:
        files.remove_tree(table.location / folder)
        raise


def _size(segments: Sequence[LandedSegment]) -> int:
    storage = segments[0].file.files
    return sum(info.size for info in storage.get_file_info([each.file.path for each in segments]))


def _written(segments: Iterable[LandedSegment], place: NewFiles) -> list[DataFile]:
    with writing(place) as made:
        for part in row_groups(_decoded(segments), PART_BYTES):
            seconds = part["cluster_seconds"]
            position = position_of(seconds, part["cluster_increment"])
            time = pc.multiply(seconds, 1_000_000).cast(pa.timestamp("us", "UTC"))
            part = part.append_column("position", position).append_column("cluster_time", time)
            made.write(part.select(CHANGES.names))
    return made.written


def _decoded(segments: Iterable[LandedSegment]) -> Iterator[pa.RecordBatch]:
    schema = DECODED.arrow()
    for segment in segments:
        try:
            yield from decode(_rows(segment), documents=segment.footer.documents, schema=schema)
        except ValueError as error:
            raise SegmentUnreadable(f"{error}; nothing was committed") from error


def _rows(segment: LandedSegment) -> Iterator[pa.RecordBatch]:
    """A segment's rows, each ordinal once, and none that an earlier segment has."""
    known: set[int] = set()

    def is_new(ordinal: int) -> bool:
        new = ordinal > segment.floor and ordinal not in known
        known.add(ordinal)
        return new

    with files.parquet_file(segment.file, SegmentUnreadable, pre_buffer=True) as reader:
        for group in range(reader.num_row_groups):
            rows = reader.read_row_group(group, [*COLUMNS])
            if segment.repeats:
                rows = rows.filter(pa.array(map(is_new, rows["ordinal"].to_pylist())))
            yield from rows.to_batches(CHUNK)
