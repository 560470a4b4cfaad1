"""Writes files that survive a power cut; defines who may read them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

PRIVATE = 0o640
"""The mode of a new file that may contain documents. The group may read, so that a job of another
user can be given access; others may not. The umask may remove more rights."""


def sync_directory(path: Path) -> None:
    """Makes the creation, linking and removal of files in the directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def probe_directory(path: Path) -> Iterator[Path]:
    """A temporary directory where ``path`` would be created; nothing is left of it at the end."""
    path = path.absolute()
    there = next(each for each in (path, *path.parents) if each.exists())
    with TemporaryDirectory(prefix=".tailrace-check-", dir=there) as made:
        yield Path(made)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all data, even if the system accepts only a part at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
