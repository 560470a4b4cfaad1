"""Files that survive a power cut, and who may read them."""

import os
from pathlib import Path

PRIVATE = 0o640
"""The mode of a new file that may have documents in it: the group reads, so that a job under
another user can be let in; nobody else does. The umask may take more away."""


def sync_directory(path: Path) -> None:
    """Makes the names in the directory durable: of files created, linked or removed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of it, where the system takes a part at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
