"""A bar on standard error while a command waits: in a terminal, and only after two seconds."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TextIO

_AFTER_SECONDS = 2.0
_STEP_SECONDS = 0.2
_WIDTH = 24


@dataclass(slots=True)
class WaitingBar:
    """What the bar shows. ``share``: how much is done, from 0 to 1; ``None`` if that is unknown:
    then it shows how much of the longest time is over."""

    what: str
    share: float | None = None
    _drawn: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, what: str) -> None:
        """Shows this from now on."""
        self.what = what

    def print(self, line: str, out: TextIO | None = None) -> None:
        """Prints a line of the command above the bar."""
        with self._lock:
            self._clear()
            print(line, file=out or sys.stdout, flush=self._drawn)

    def draw(self, passed: float, seconds: float) -> None:
        """Shows it, so many seconds after the begin."""
        share = passed / seconds if self.share is None else self.share
        bar = ("#" * int(min(max(share, 0), 1) * _WIDTH)).ljust(_WIDTH, ".")
        with self._lock:
            sys.stderr.write(f"\r\x1b[K{self.what}  [{bar}] {passed:.0f} s")
            sys.stderr.flush()
            self._drawn = True

    def remove(self) -> None:
        """Clears its line."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def waiting_bar(
    what: str, seconds: float, after_seconds: float = _AFTER_SECONDS
) -> Iterator[WaitingBar]:
    """Shows a bar while the block runs, which may change it. ``seconds``: how long that may take.

    The block prints by :meth:`WaitingBar.print`, or its lines would be mixed up with the bar.
    """
    progress = WaitingBar(what)
    if not sys.stderr.isatty():
        yield progress
        return
    over = threading.Event()
    drawing = threading.Thread(
        target=_draw, args=(progress, seconds, after_seconds, over), daemon=True
    )
    drawing.start()
    try:
        yield progress
    finally:
        over.set()
        drawing.join()


def _draw(
    progress: WaitingBar, seconds: float, after_seconds: float, over: threading.Event
) -> None:
    began, wait = monotonic(), after_seconds
    while not over.wait(wait):
        progress.draw(monotonic() - began, seconds)
        wait = _STEP_SECONDS
    progress.remove()
