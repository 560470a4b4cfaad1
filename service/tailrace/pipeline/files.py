"""Reads and writes Parquet files of tables in this process."""

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs, parquet

from tailrace.errors import PipelineRefused, describe
from tailrace.pipeline import bounds
from tailrace.pipeline.location import Location
from tailrace.pipeline.partition_files import NewFiles, writing
from tailrace.pipeline.tables import DataFile, Table

_READERS = 8

_FILE_BYTES = 32 * 2**20
_FILE_ROWS = 500_000
"""The intended size of a file. Only one core writes it, however well its rows compress."""

_FEW_VALUES = ("operation", "database", "collection", "image")
"""Columns that this process keeps as numbers of their distinct values."""


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


def write_arrow(rows: pa.Table, table: Table) -> list[DataFile]:
    """Writes few rows to files in a new directory, one for each partition.

    No commit refers to these files yet. After an error they are removed.
    """
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


def files_below(table: Table, batch: str) -> list[DataFile]:
    """The files that another program has written to a new directory of a table."""
    folder = table.location / batch
    found = [(path, info) for path, info in folder.below() if path.endswith(".parquet")]
    with ThreadPoolExecutor(_READERS) as readers:
        return list(readers.map(lambda each: _describe(folder, batch, each, table), found))


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
