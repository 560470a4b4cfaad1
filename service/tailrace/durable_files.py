"""Files that survive a power cut: what is in a file, and that its name is in its directory."""

import os
from pathlib import Path


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
