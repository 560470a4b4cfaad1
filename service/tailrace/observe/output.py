"""Standard output and error that never block the process, even if a pipe's reader stops reading.

A write only queues, and a thread writes in order. Lines that do not fit into the queue or cannot be
written are lost and counted. When lines can be written again, the log says how many were lost.
"""

import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NoReturn, Self

import structlog

from tailrace.signals import leave_to_main_thread

QUEUE_BYTES = 4 << 20
"""The size of the queue of each of the two streams."""

DRAIN_SECONDS = 1.0
"""How long the process waits at its end until its last lines are written."""


class QueuedFile(io.RawIOBase):
    """A file descriptor with a queue and a thread: writes return at once and never fail.

    After some lines were lost, the thread calls ``recovered`` with their number.
    """

    def __init__(
        self,
        descriptor: int,
        name: str,
        recovered: Callable[[int], None] = lambda lines: None,
        *,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        super().__init__()
        self.name = name
        self.dropped = 0
        self._descriptor = descriptor
        self._recovered = recovered
        self._queue_bytes = queue_bytes
        self._process = os.getpid()
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._writing = False
        self._unreported = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name=f"output {name}", daemon=True).start()

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        text = bytes(data)
        if os.getpid() != self._process:  # a forked process does not have the thread
            return os.write(self._descriptor, text)
        with self._changed:
            if self._size and self._size + len(text) > self._queue_bytes:
                self._lose(text)
            else:
                self._queue.append(text)
                self._size += len(text)
                self._changed.notify_all()
        return len(text)

    def drain(self, seconds: float) -> bool:
        """Waits at most ``seconds`` until everything is written; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._queue or self._writing), seconds)

    def _run(self) -> None:
        leave_to_main_thread()
        torn = False
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._queue)
                text = b"".join(self._queue)
                self._queue.clear()
                self._writing = True
            if torn:  # end the line that was cut off
                torn = bool(self._write(b"\n"))
            lost = text if torn else self._write(text)
            if 0 < len(lost) < len(text):
                torn = not text.removesuffix(lost).endswith(b"\n")
            with self._changed:
                self._size -= len(text)
                self._lose(lost)
                lines = 0 if lost or self._queue else self._unreported
                self._unreported -= lines
            if lines:
                self._recovered(lines)

    def _write(self, text: bytes) -> bytes:
        """Writes the text; returns the part that could not be written."""
        at, end = 0, len(text)
        while at < end:
            # As many whole lines as a pipe takes atomically, because other processes may share it.
            piece = text.rfind(b"\n", at, at + select.PIPE_BUF) + 1 or text.find(b"\n", at) + 1
            try:
                at += os.write(self._descriptor, text[at : piece or end])
            except BlockingIOError:  # a process that shares the pipe has made it non-blocking
                select.select((), (self._descriptor,), ())
            except OSError:  # the reader is gone or the disk is full; a later write may succeed
                break
        return text[at:]

    def _lose(self, text: bytes) -> None:
        lines = text.count(b"\n")
        self.dropped += lines
        self._unreported += lines


class Output:
    """A context in which ``sys.stdout`` and ``sys.stderr`` never block."""

    def __init__(self) -> None:
        self._files: dict[str, QueuedFile] = {}
        self._before = sys.stdout, sys.stderr

    @property
    def dropped(self) -> int:
        """Lines lost since the start."""
        return sum(file.dropped for file in self._files.values())

    def __enter__(self) -> Self:
        _fill_standard_descriptors()
        self._before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self._stream(1, "stdout"), self._stream(2, "stderr")
        return self

    def __exit__(self, *error: object) -> None:
        self.drain()
        sys.stdout, sys.stderr = self._before

    def drain(self) -> None:
        """Waits up to :data:`DRAIN_SECONDS` per stream until its lines are written."""
        for file in self._files.values():
            file.drain(DRAIN_SECONDS)

    def leave(self, code: int) -> NoReturn:
        """Ends the process at once, without waiting for other threads."""
        self.drain()
        os._exit(code)

    def _stream(self, descriptor: int, name: str) -> io.TextIOWrapper:
        file = self._files[name] = QueuedFile(descriptor, name, partial(_log_dropped, name))
        return io.TextIOWrapper(
            file, encoding="utf-8", errors="backslashreplace", write_through=True
        )


def _log_dropped(stream: str, lines: int) -> None:
    structlog.get_logger().warning("log.lines_dropped", lines=lines, stream=stream)


def _fill_standard_descriptors() -> None:
    """Opens closed descriptors from 0 to 2, or the next file opened would get the log."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
