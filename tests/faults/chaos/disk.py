"""A small disk of its own for the checkpoint store: it can be filled up, and freed again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE = "16m"  # the store needs some hundred kilobytes
_BLOCK = bytes(4096)


@contextmanager
def small_disk(directory: Path) -> Iterator[bool]:
    """Mounts a file system at ``directory``; yields whether this user may do that."""
    directory.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(directory)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path) -> Path:
    """Writes until nothing more fits; the disk is free again without the file it returns."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(_BLOCK):
                pass
        except OSError:
            return ballast
    raise AssertionError("a disk that is full fails")
