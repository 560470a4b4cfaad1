"""Reads a part of the lake in one of Spark's Python processes, as record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import bson
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute as pc

from tailrace.errors import SegmentUnreadable, describe
from tailrace.lake.segment import Documents, segment_name
from tailrace.pipeline.lineage import position_of
from tailrace.pipeline.location import Location
from tailrace.spark.options import Options
from tailrace.spark.planning import Part, Segments

_View: TypeAlias = Callable[[Segments, Options], Iterator[pa.RecordBatch]]
_MICROSECONDS = 1_000_000
_BATCH_BYTES = 2 * 1024 * 1024
"""Row groups up to so many bytes become one batch; a row group has about one megabyte."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Consecutive rows of a segment; ``where``: the segment's file, for messages."""

    where: str
    segment: int
    batch: pa.RecordBatch

    @property
    def documents(self) -> Documents:
        """The form in which the segment has documents."""
        text = self.batch.schema.field("full_document").type == pa.string()
        return Documents.CANONICAL if text else Documents.BSON

    @contextmanager
    def naming_faults(self) -> Iterator[None]:
        """Raises what is wrong with a document as :class:`SegmentUnreadable`."""
        try:
            yield
        except (ValueError, TypeError, bson.errors.BSONError) as error:
            ordinals = self.batch.column("ordinal")
            raise SegmentUnreadable(
                f"{self.where}: the events {ordinals[0]} to {ordinals[-1]}: {describe(error)}"
            ) from None


def read(part: Part | None) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in the columns of the view. Raises :class:`SegmentUnreadable`."""
    if part is None:
        return iter(())
    segments = Segments(**part)
    options = Options.of(segments.options)
    view: _View = import_module(f"tailrace.spark.{options.view}").batches
    return view(segments, options)


def rows_of(
    segments: Segments, options: Options, number: int, columns: Sequence[str]
) -> Iterator[RowBatch]:
    """The rows of one of these segments, without those that repeat others."""
    at = number - segments.first
    if not segments.rows[at]:
        return
    floor = segments.floors.get(number)
    file = Location.of(options.lake, options.access) / segments.scope / segment_name(number)
    seen: set[int] = set()
    for batch in batches_of(file, columns):
        if floor is not None:
            ordinals = batch.column("ordinal").to_pylist()
            new = [each > floor and each not in seen for each in ordinals]
            seen.update(ordinals)
            batch = batch.filter(pa.array(new, pa.bool_()))
        if batch.num_rows:
            yield RowBatch(str(file), number, batch)


def batches_of(file: Location, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a file, each of whole row groups, whose pages are checked."""
    names = list(columns)
    try:
        with file.files.open_input_file(file.path) as source:
            parquet = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True)
            for groups in _groups(parquet.metadata):
                table = parquet.read_row_groups(groups, columns=names, use_threads=False)
                yield from table.combine_chunks().to_batches()
    except (pa.ArrowException, OSError) as error:
        raise SegmentUnreadable(
            f"{file}: is damaged or cannot be read: {describe(error)}. Restore it"
        ) from error


def _groups(metadata: pq.FileMetaData) -> Iterator[list[int]]:
    groups: list[int] = []
    size = 0
    for at in range(metadata.num_row_groups):
        groups.append(at)
        size += metadata.row_group(at).total_byte_size
        if size >= _BATCH_BYTES:
            yield groups
            groups, size = [], 0
    if groups:
        yield groups


def timestamps(seconds: pa.Array) -> pa.Array:
    """Seconds since 1970 as Spark's timestamps; null for null."""
    return pc.multiply(seconds, _MICROSECONDS).cast(pa.timestamp("us", "UTC"))


def times(batch: pa.RecordBatch) -> Any:
    """The cluster times as positions; that of a row without one is least."""
    names = ("cluster_seconds", "cluster_increment")
    return np.asarray(position_of(*(pc.fill_null(batch.column(name), 0) for name in names)))
