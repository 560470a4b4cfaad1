"""Standard output and error of a process that never waits for whoever reads them.

A pipe whose reader stopped would hold a write for ever, and one whose reader is gone fails it. Here
a write only queues, and a thread writes in order. What does not fit into the queue, or cannot be
written, is lost and counted; once lines can be written again, the log says how many were lost.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self

import structlog

from tailrace.signals import leave_to_main_thread

QUEUE_BYTES = 4 << 20
"""What may wait for a reader that is slow, for each of the two streams."""

DRAIN_SECONDS = 1.0
"""How long the end of the process waits for its last lines to be written."""


class QueuedFile(io.RawIOBase):
    """A file descriptor behind a queue and a thread: writes return at once and never fail.

    ``caught_up`` is called in that thread whenever all that was queued is written.
    """

    def __init__(
        self,
        descriptor: int,
        name: str,
        caught_up: Callable[[], None] = lambda: None,
        *,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        super().__init__()
        self.name = name
        self.dropped = 0
        """Lines that were lost."""
        self._descriptor = descriptor
        self._caught_up = caught_up
        self._queue_bytes = queue_bytes
        self._process = os.getpid()
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._writing = False
        self._failing = False
        self._untold = 0
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
        if os.getpid() != self._process:  # a fork has no such thread
            return os.write(self._descriptor, text)
        with self._changed:
            if self._size and self._size + len(text) > self._queue_bytes:
                self._lose(text)
            else:
                self._queue.append(text)
                self._size += len(text)
                self._changed.notify_all()
        return len(text)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued."""
        return not self._queue

    def take_lost(self) -> int:
        """How many lines were lost since the last call, once lines can be written again."""
        with self._changed:
            if self._queue or self._failing:
                return 0
            lost, self._untold = self._untold, 0
            return lost

    def drain(self, seconds: float) -> bool:
        """Waits until all is written, but not longer than that; says whether it is."""
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
            if torn:  # a line that was cut off shall not spoil the next one
                torn = bool(self._write(b"\n"))
            lost = text if torn else self._write(text)
            if 0 < len(lost) < len(text):
                torn = not text.removesuffix(lost).endswith(b"\n")
            with self._changed:
                self._size -= len(text)
                self._failing = bool(lost)
                self._lose(lost)
                caught_up = not (self._failing or self._queue)
            if caught_up:
                self._caught_up()

    def _write(self, text: bytes) -> bytes:
        """Writes it; returns what could not be written."""
        at, end = 0, len(text)
        while at < end:
            # As many whole lines as a pipe takes in one piece: another writer has it too, perhaps.
            piece = text.rfind(b"\n", at, at + select.PIPE_BUF) + 1 or text.find(b"\n", at) + 1
            try:
                at += os.write(self._descriptor, text[at : piece or end])
            except BlockingIOError:  # another process has made the pipe so
                select.select((), (self._descriptor,), ())
            except OSError:  # the reader is gone, the disk is full: perhaps not for ever
                break
        return text[at:]

    def _lose(self, text: bytes) -> None:
        lines = text.count(b"\n")
        self.dropped += lines
        self._untold += lines


class Output:
    """While its block runs, ``sys.stdout`` and ``sys.stderr`` wait for nobody."""

    def __init__(self) -> None:
        self._files: dict[str, QueuedFile] = {}
        self._before = sys.stdout, sys.stderr

    @property
    def dropped(self) -> int:
        """Lines that were lost since the start."""
        return sum(file.dropped for file in self._files.values())

    def __enter__(self) -> Self:
        _fill_standard_descriptors()
        self._before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self._stream(1, "stdout"), self._stream(2, "stderr")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.drain()
        sys.stdout, sys.stderr = self._before

    def drain(self) -> None:
        """Gives what was printed a last moment to be written."""
        for file in self._files.values():
            file.drain(DRAIN_SECONDS)

    def leave(self, code: int) -> NoReturn:
        """Ends the process at once: a thread that waits for a server would keep it otherwise."""
        self.drain()
        os._exit(code)

    def _stream(self, descriptor: int, name: str) -> io.TextIOWrapper:
        file = self._files[name] = QueuedFile(descriptor, name, self._tell)
        return io.TextIOWrapper(
            file, encoding="utf-8", errors="backslashreplace", write_through=True
        )

    def _tell(self) -> None:
        """Logs how many lines were lost, once the log can be written and they could be as well."""
        if not self._files["stderr"].is_idle:
            return  # its thread comes here too
        for name, file in self._files.items():
            if lines := file.take_lost():
                structlog.get_logger().warning("log.lines_dropped", lines=lines, stream=name)


def _fill_standard_descriptors() -> None:
    """Where one of them is closed, the next file that is opened would be written into as a log."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
