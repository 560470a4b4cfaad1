"""Detects that code blocks the event loop, and names the code.

A heartbeat on the loop measures its own delay. A thread notices when the heartbeat is overdue, and
looks at what the loop's thread is executing.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import structlog

from tailrace.signals import leave_to_main_thread

HEARTBEAT_SECONDS = 0.1
BLOCKED_SECONDS = 1.0
"""A block of this length is logged. A lack of CPU alone delays the loop by some tenths of a second.
"""

Explain = Callable[[FrameType], Mapping[str, Any]]
"""Names the handler whose code the loop's thread is executing, as keys of a log line."""


class LoopWatch:
    """Watches the running loop; ``observe`` gets the lag of each heartbeat, in seconds.

    Each block is logged while it lasts, with the result of ``explain``, and at its end. A block by
    code that holds the interpreter's lock (a regular expression) is noticed only at its end, and
    the code is not named.
    """

    def __init__(self, observe: Callable[[float], None], explain: Explain) -> None:
        self._observe = observe
        self._explain = explain
        self._log = structlog.get_logger()
        self._thread_id = 0
        self._beat = 0.0
        self._reported = 0.0
        self._over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._thread_id = threading.get_ident()
        self._beat = time.monotonic()
        self._schedule()
        thread = threading.Thread(target=self._look, name="loop watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._timer.cancel()
            self._over.set()
            thread.join()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HEARTBEAT_SECONDS, self._note_beat)

    def _note_beat(self) -> None:
        before, self._beat = self._beat, time.monotonic()
        lag = max(self._beat - before - HEARTBEAT_SECONDS, 0.0)
        self._observe(lag)
        self._schedule()
        if lag < BLOCKED_SECONDS:
            return
        reported = self._reported == before
        self._log.warning(
            "event_loop.released" if reported else "event_loop.blocked", seconds=round(lag, 3)
        )

    def _look(self) -> None:
        leave_to_main_thread()
        while not self._over.wait(BLOCKED_SECONDS / 4):
            beat = self._beat
            lag = time.monotonic() - beat - HEARTBEAT_SECONDS
            if lag < BLOCKED_SECONDS or self._reported == beat:
                continue
            frame = sys._current_frames().get(self._thread_id)
            culprit = self._explain(frame) if frame else {}
            if self._beat == beat:  # else the loop has just been released: not the blocking frame
                self._reported = beat
                self._log.warning("event_loop.blocked", seconds=round(lag, 3), **culprit)
