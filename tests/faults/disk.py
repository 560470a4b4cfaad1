"""A small disk of its own: it can be filled up and freed again, or made read-only for a while."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon import until

SIZE = "16m"  # a checkpoint store, or a test's lake, needs some hundred kilobytes
_BLOCK = bytes(4096)


@contextmanager
def small_disk(directory: Path, size: str = SIZE) -> Iterator[bool]:
    """Mounts a file system at ``directory``; yields whether this user may do that."""
    directory.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
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


def remount(directory: Path, option: str) -> None:
    """Mounts it again, ``ro`` or ``rw``; waits for the moment when no file is open for writing."""

    def remounted() -> bool:
        command = ["mount", "-o", f"remount,{option}", str(directory)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    until(remounted, f"{directory} mounted {option}")
