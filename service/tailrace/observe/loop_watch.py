"""Notices that something keeps the event loop, and asks who.

While the loop is kept nothing else runs: no other handler, no read, no checkpoint, no answer to
``/livez``. A heartbeat on the loop measures how late it comes; a thread beside the loop sees that
it is overdue, and looks at what the loop's thread is executing then.
"""

from __future__ import annotations

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
"""From here on it is told in the log; what is shorter shows in the metric. Ten times what asyncio
itself calls slow: a container that is short of CPU is late by some tenths, and nobody's fault."""

Explain = Callable[[FrameType], Mapping[str, Any]]
"""Says whose work a frame is that the loop's thread is executing."""


class LoopWatch:
    """Watches the loop that it is used on; ``observe`` gets the lag of each heartbeat, in seconds.

    ``event_loop.blocked`` is logged once a block, while it lasts, with what ``explain`` says;
    ``event_loop.released`` with its length. Code that keeps even the interpreter (a regular
    expression, a large JSON document) is noticed only afterwards: then nobody is named.
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
        """Watches the running loop, which is that of this thread, while the block lasts."""
        self._thread_id = threading.get_ident()
        self._beat = time.monotonic()
        timer = _Repeated(asyncio.get_running_loop(), self._note_beat)
        thread = threading.Thread(target=self._look, name="loop watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            timer.cancel()
            self._over.set()
            thread.join()

    def _note_beat(self) -> None:
        before, self._beat = self._beat, time.monotonic()
        lag = max(self._beat - before - HEARTBEAT_SECONDS, 0.0)
        self._observe(lag)
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
            found = self._explain(frame) if frame else {}
            if self._beat == beat:  # else it has just been released, and the frame is another's
                self._reported = beat
                self._log.warning("event_loop.blocked", seconds=round(lag, 3), **found)


class _Repeated:
    """Calls back at every heartbeat, until it is cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._timer = loop.call_later(HEARTBEAT_SECONDS, self._run)

    def _run(self) -> None:
        self._call()
        self._timer = self._loop.call_later(HEARTBEAT_SECONDS, self._run)

    def cancel(self) -> None:
        self._timer.cancel()
