"""Parquet files that a process writes without Spark: one for each partition of the rows.

No commit refers to them yet. Rows may come in several parts: each is a row group of its file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet

from tailrace.errors import PipelineRefused, describe
from tailrace.pipeline import bounds
from tailrace.pipeline.location import Location
from tailrace.pipeline.tables import DataFile
from tailrace.pipeline.tables.row_groups import Bounds, joined

OPEN_FILES = 200
"""At most so many files are open. Many systems allow a process 1,024, and macOS 256."""


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Where files of a table come to be. Other processes may write there, too.

    ``folder``: a directory below ``table`` that nobody else uses.
    """

    table: Location
    folder: str
    partition_by: Sequence[str]
    bounded: bool


@contextmanager
def writing(place: NewFiles) -> Iterator[PartitionFiles]:
    """Files that are complete once the block has ended without an error.

    Raises :class:`PipelineRefused`.
    """
    files = PartitionFiles(place)
    try:
        yield files
        files.finish()
    except OSError as error:
        why = describe(error)
        raise PipelineRefused(f"{place.table}: nothing was committed: {why}{hint(why)}") from error
    finally:
        files.close()


def hint(reason: str) -> str:
    return ". Make room, then run again" if "No space left" in reason else ""


@dataclass(slots=True)
class _File:
    path: str
    partition: dict[str, str]
    stream: pa.NativeFile
    writer: parquet.ParquetWriter
    parts: list[tuple[int, Bounds]] = field(default_factory=list)
    rows: int = 0


class PartitionFiles:
    def __init__(self, place: NewFiles) -> None:
        self.written: list[DataFile] = []
        self._place = place
        self._open: dict[tuple[str, ...], _File] = {}
        """By their partition; the one that was written last comes last."""

    def write(self, rows: pa.Table) -> None:
        for partition, part in _partitions(rows, self._place.partition_by):
            key = tuple(partition.values())
            file = self._open.pop(key, None)
            if file is None:
                if len(self._open) == OPEN_FILES:
                    self._finish_one()
                file = self._begun(partition, part.schema)
            self._open[key] = file
            file.writer.write_table(part)
            file.rows += part.num_rows
            if self._place.bounded:
                file.parts.append((part.num_rows, bounds.of_rows(part)))

    def _begun(self, partition: dict[str, str], schema: pa.Schema) -> _File:
        # Some readers take the values from the names of directories, as Spark writes them.
        names = [f"{name}={quote(value, safe='!')}" for name, value in partition.items()]
        above = "/".join([self._place.folder, *names])
        path = f"{above}/part-{uuid4().hex}.parquet"
        file = self._place.table / path
        (self._place.table / above).make()
        stream = file.files.open_output_stream(file.path)
        writer = parquet.ParquetWriter(
            stream, schema, compression="zstd", compression_level=1, write_page_checksum=True
        )
        return _File(path, partition, stream, writer)

    def finish(self) -> None:
        while self._open:
            self._finish_one()

    def _finish_one(self) -> None:
        """Completes the file that was not written to for the longest time."""
        file = next(iter(self._open.values()))
        file.writer.close()
        size = file.stream.tell()
        file.stream.close()
        del self._open[tuple(file.partition.values())]
        its_bounds = joined(file.parts) if self._place.bounded else ()
        self.written.append(DataFile(file.path, size, file.rows, file.partition, *its_bounds))

    def close(self) -> None:
        """Closes what is not finished, which is no Parquet file then."""
        for file in self._open.values():
            file.writer.is_open = False  # or it would write to the file when it is deleted
            with suppress(OSError):
                file.stream.close()


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
