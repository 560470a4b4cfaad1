"""A file of lines that several processes append to, each of which reads what the others wrote.

Lines are whole: who appends holds the file alone (``flock``), so what has no end when somebody
else gets hold of it was torn by a crash, and its writer never said that it is stored. Readers pass
over it; who appends next cuts it off.

A file that is replaced, truncated or edited is read again from its start. One that is moved away
or removed is an error, for what it holds would be forgotten.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import structlog

from tailrace.errors import ConfigurationError, DeadLetterError, Problem
from tailrace.file_mode import PRIVATE

LOCK_SECONDS = 10.0
"""How long another process may hold the file: it does so for one append, or has been stopped."""

_POLL_SECONDS = 0.005
_TAIL = 64
"""So many bytes in front of the position tell whether the file is still the one that was read."""


class Line(NamedTuple):
    """A line with its end, the number that editors show, and where it begins."""

    number: int
    offset: int
    data: bytes


class SharedFile:
    """The file, which need not exist before something is appended.

    Not for several threads at once. Raises ``OSError`` as the system gives it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._replaced = False
        self._begin_again()

    @contextmanager
    def locked(self, *, create: bool = False) -> Iterator[bool]:
        """Holds the file alone meanwhile; yields whether there is one.

        Raises :class:`DeadLetterError` where the file has been removed, or another process does
        not let go of it.
        """
        descriptor = self._take(create)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def is_another(self) -> bool:
        """Whether what was read is not what stands there now: then :meth:`lines` begins again."""
        tail, position = self._tail, self._position
        if self._replaced or self.read(position - len(tail), len(tail)) != tail:
            self._begin_again()
            self._replaced = False
            return True
        return False

    def lines(self) -> Iterator[Line]:
        """The lines that were not read yet. One counts as read when the next is asked for."""
        with os.fdopen(os.dup(self._locked), "rb") as file:
            file.seek(self._position)
            for data in file:
                line = data if data.endswith(b"\n") else self._ended(data)
                if line:
                    yield Line(self._count + 1, self._position, line)
                    self._advance(line)

    def append(self, data: bytes) -> Line:
        """Writes a line; it is on the disk when this returns, or not at all if this raises.

        Everything in front of it must have been read; what was torn is cut off first.
        """
        descriptor, end = self._locked, self._position
        self._cut()
        try:
            written = 0
            while written < len(data):
                written += os.write(descriptor, data[written:])
            os.fdatasync(descriptor)
            if end == 0:
                _sync_directory(self._path.parent)
        except BaseException:
            os.ftruncate(descriptor, end)
            raise
        line = Line(self._count + 1, end, data)
        self._advance(data)
        return line

    def sync(self) -> None:
        """Brings to the disk what another process may have died over."""
        os.fdatasync(self._locked)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from the middle; fewer where the file ends."""
        return os.pread(self._locked, length, offset)

    def close(self) -> None:
        """Closes it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def _locked(self) -> int:
        if self._descriptor is None:
            raise OSError(errno.EBADF, "the file is not open")
        return self._descriptor

    def _begin_again(self) -> None:
        self._position = self._count = 0
        self._tail = b""

    def _advance(self, line: bytes) -> None:
        self._position += len(line)
        self._count += 1
        self._tail = line[-_TAIL:]

    def _take(self, create: bool) -> int | None:
        while True:
            if self._descriptor is None:
                self._descriptor = self._open(create)
                if self._descriptor is None:
                    return None
            descriptor = self._descriptor
            self._lock(descriptor)
            try:
                if os.path.samestat(os.stat(self._path), os.fstat(descriptor)):
                    return descriptor
            except OSError as error:
                if self._position or not isinstance(error, FileNotFoundError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                    raise
            self.close()
            self._replaced = True

    def _open(self, create: bool) -> int | None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        if not create:
            try:
                return os.open(self._path, flags)
            except FileNotFoundError:
                return None
        new = [each for each in self._path.parents if not each.exists()]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for each in new:
            _sync_directory(each.parent)
        return os.open(self._path, flags | os.O_CREAT, PRIVATE)

    def _lock(self, descriptor: int) -> None:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DeadLetterError(
                        f"{self._path} has been locked by another process for {LOCK_SECONDS:g} s; "
                        "let it go on, or end it"
                    ) from None
                time.sleep(_POLL_SECONDS)

    def _ended(self, data: bytes) -> bytes:
        """The last line with the end that it lacks, or nothing where it was torn."""
        if _is_json(data):  # whole: torn off is its end alone, or an editor wrote none
            os.write(self._locked, b"\n")
            return data + b"\n"
        # Anything else is not ours: the reader says that it cannot be read. (Zeros are what a
        # file system may leave of the last write when the power fails.)
        return b"" if data.startswith((b"{", b"\0")) else data

    def _cut(self) -> None:
        torn = os.fstat(self._locked).st_size - self._position
        if torn:
            structlog.get_logger().warning(
                "dead_letters.torn_line_cut", path=str(self._path), bytes=torn
            )
            os.ftruncate(self._locked, self._position)


def require_usable(path: Path) -> None:
    """Raises :class:`ConfigurationError` unless the file can be written, or created.

    Nothing is created to find out.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        _require_creatable(path)
        return
    except OSError as error:
        raise _unusable(path, error.strerror) from error
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise _unusable(path, f"it is {what}")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))
    except OSError as error:
        raise _unusable(path, error.strerror) from error


def _require_creatable(path: Path) -> None:
    target = Path(os.path.realpath(path))  # a link to a file that is not there yet
    nearest = next(each for each in target.parents if each.exists())
    if not nearest.is_dir():
        raise _unusable(path, f"{nearest} is not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise _unusable(path, f"{nearest} cannot be written")


def _unusable(path: Path, reason: str | None) -> ConfigurationError:
    return ConfigurationError(
        Problem(
            "delivery.dead_letters.path",
            f"cannot append to {path}: {reason}. Choose a file in a directory that this process "
            "may write",
        )
    )


def _is_json(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
