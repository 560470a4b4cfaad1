"""A small disk that tests can fill up and free again, or make read-only for a while."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon import until

SIZE = "16m"  # a checkpoint store or a test's lake needs some hundred kilobytes
_BLOCK = bytes(4096)


@contextmanager
def small_disk(directory: Path, size: str = SIZE) -> Iterator[bool]:
    """Mounts a file system at ``directory``; yields True, or False if this user may not mount."""
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
    """Fills the disk, and returns the file that does; deleting the file frees the disk."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(_BLOCK):
                pass
        except OSError:
            return ballast
    raise AssertionError("a disk that is full fails")


def remount(directory: Path, option: str) -> None:
    """Remounts it ``ro`` or ``rw``, as soon as no file is open for writing."""

    def remounted() -> bool:
        command = ["mount", "-o", f"remount,{option}", str(directory)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    until(remounted, f"{directory} mounted {option}")
