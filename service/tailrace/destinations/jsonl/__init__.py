"""Appends one event per line to a file, exactly as MongoDB sent it, in Extended JSON v2.

A partial line is removed: after a crash at the next start (its event was not handled and comes
again), after a failed write at once. Encoding, writing and flushing happen in a thread.
"""

import errno
import fcntl
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal

import structlog
from anyio import CapacityLimiter, to_thread
from pydantic import Field

from tailrace.destination import (
    PRIVATE,
    Comparison,
    Handler,
    HandlerSettings,
    HandlerType,
    Opening,
    PerBatch,
    ProbeContext,
    RunIdentity,
    probe_directory,
    raw_list,
    sync_directory,
    write_all,
)
from tailrace.destination.log_comparison import log_comparison
from tailrace.destination.settings import Flag, Text
from tailrace.destinations.jsonl.comparison import WrittenLines, row_maker
from tailrace.errors import ConfigurationError, Problem, Unavailable, advice
from tailrace.event.json_lines import json_lines

_BATCH = 1000
_BATCH_BYTES = 4 * 1024 * 1024
_BLOCK = 262_144


class JsonlHandlerSettings(HandlerSettings):
    """Appends each event to a file as one line of Extended JSON v2, exactly as MongoDB sent it."""

    type: Literal["jsonl"]
    """Selects this handler."""

    path: Text
    """The file. A missing directory is created."""

    json_format: Literal["relaxed", "canonical"] = Field("relaxed", alias="json")
    """The form of Extended JSON: `relaxed` is easier to read, `canonical` keeps every BSON type."""

    fsync: Flag = True
    """Whether an event must be on the disk before it counts as handled. `false` is faster, but a
    power cut (not a crash of the process) may lose events that the checkpoint has passed."""


class JsonLines:
    """Appends events of any scope to ``settings.path``, and keeps that file locked while open."""

    def __init__(self, opening: Opening, settings: JsonlHandlerSettings) -> None:
        self._name = opening.name
        self._settings = settings
        self._one_at_a_time = CapacityLimiter(1)
        self._file: LineFile

    async def __aenter__(self) -> None:
        try:
            self._file = LineFile(Path(self._settings.path), fsync=self._settings.fsync)
        except OSError as error:
            raise _refusal(self._name, self._settings.path, error) from error

    async def __aexit__(self, *error: object) -> None:
        self._file.close()

    async def write(self, events: Sequence[bytes], identity: RunIdentity) -> None:
        """Returns when the lines of all events are written."""
        await to_thread.run_sync(self._append, events, limiter=self._one_at_a_time)

    def _append(self, events: Sequence[bytes]) -> None:
        try:
            canonical = self._settings.json_format == "canonical"
            self._file.append(json_lines(events, canonical=canonical))
        except OSError as error:
            help_ = advice(error) or "it is tried again"
            raise Unavailable(
                f"handler {self._name!r}: {self._settings.path} cannot be written: "
                f"{_reason(error)}: {help_}. No event becomes a dead letter"
            ) from error


def _handler(opening: Opening, settings: JsonlHandlerSettings, target: JsonLines) -> Handler:
    def comparison(identity: RunIdentity) -> AbstractAsyncContextManager[Comparison]:
        make = row_maker(canonical=settings.json_format == "canonical")
        return log_comparison(lambda: WrittenLines(Path(settings.path)), make)

    calls = PerBatch(target.write, raw_list, _BATCH, _BATCH_BYTES)
    return Handler(opening.name, calls, comparison=comparison, is_log=True)


def try_line_file(name: str, settings: JsonlHandlerSettings) -> str:
    """Tries to append to the file, or to create one there; leaves nothing.

    Returns what is possible. Blocks. Raises :class:`ConfigurationError`.
    """
    path = Path(settings.path)
    try:
        if not path.exists():
            with probe_directory(path.parent) as directory:
                LineFile(directory / path.name, fsync=False).close()
            return f"{path} can be created"
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _end_of_lines(descriptor)
        finally:
            os.close(descriptor)
    except BlockingIOError as error:
        return f"{path} is there; {_reason(error)} now, perhaps the daemon"
    except OSError as error:
        raise _refusal(name, settings.path, error) from error
    return f"{path} can be appended to"


async def _probe(opening: Opening, settings: JsonlHandlerSettings, context: ProbeContext) -> str:
    return await to_thread.run_sync(try_line_file, opening.name, settings)


class LineFile:
    """A file of whole lines, opened for appending and locked. Raises ``OSError``."""

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self._path = path
        self._fsync = fsync
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = self._open()

    def append(self, lines: Iterable[bytes]) -> None:
        """Writes all lines or none. With ``fsync``, they are on the disk when this returns."""
        self._follow_rename()
        end = os.fstat(self._descriptor).st_size
        try:
            for some in lines:
                write_all(self._descriptor, some)
            if self._fsync:
                os.fdatasync(self._descriptor)
        except BaseException:
            os.ftruncate(self._descriptor, end)
            raise

    def close(self) -> None:
        """Closes the file, which releases the lock."""
        os.close(self._descriptor)

    def _open(self) -> int:
        is_new = not self._path.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_new and self._fsync:
                sync_directory(self._path.parent)
            self._truncate_partial_line(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _follow_rename(self) -> None:
        """Opens a new file if log rotation has renamed the old one."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            there = None
        if there is None or there.st_ino != os.fstat(self._descriptor).st_ino:
            opened = self._open()
            os.close(self._descriptor)
            self._descriptor = opened

    def _truncate_partial_line(self, descriptor: int) -> None:
        size, end = _end_of_lines(descriptor)
        if end < size:
            structlog.get_logger().warning(
                "jsonl.partial_line_truncated", path=str(self._path), bytes=size - end
            )
            os.ftruncate(descriptor, end)


def _end_of_lines(descriptor: int) -> tuple[int, int]:
    """The file's size, and where its last whole line ends.

    Raises ``OSError`` if the file has something else than lines of JSON.
    """
    size = end = os.fstat(descriptor).st_size
    while end:
        start = max(end - _BLOCK, 0)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end == 0 < size and os.pread(descriptor, 1, 0) != b"{":
        raise OSError(errno.EINVAL, "it holds something else than lines of JSON")
    return size, end


def _refusal(name: str, path: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        Problem(
            f"handlers.{name}.path",
            f"cannot append to {path}: {_reason(error)}. Choose a path in a directory that this "
            "process may write, and give each process its own",
        )
    )


def _reason(error: OSError) -> str:
    if isinstance(error, BlockingIOError):
        return "another process writes it"
    return error.strerror or str(error)


JSONL = HandlerType(
    JsonlHandlerSettings,
    JsonLines,
    _handler,
    probe=_probe,
    shared=lambda settings: True,
    holds=lambda settings: os.path.realpath(settings.path),
)
