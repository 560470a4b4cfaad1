"""A bar on standard error while a command waits: in a terminal, and only after two seconds."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

_AFTER_SECONDS = 2.0
_STEP_SECONDS = 0.2
_WIDTH = 24


@dataclass(slots=True)
class WaitingBar:
    """What the bar shows. ``share``: how much is done, from 0 to 1; ``None`` if that is unknown:
    then it shows how much of the longest time is over."""

    what: str
    share: float | None = None


@contextmanager
def waiting_bar(
    what: str, seconds: float, after_seconds: float = _AFTER_SECONDS
) -> Iterator[WaitingBar]:
    """Shows a bar while the block runs, which may change it. ``seconds``: how long that may take.

    What the block prints would be mixed up with it.
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
    began, drawn = monotonic(), False
    wait = after_seconds
    while not over.wait(wait):
        passed = monotonic() - began
        share = passed / seconds if progress.share is None else progress.share
        bar = ("#" * int(min(max(share, 0), 1) * _WIDTH)).ljust(_WIDTH, ".")
        sys.stderr.write(f"\r\x1b[K{progress.what}  [{bar}] {passed:.0f} s")
        sys.stderr.flush()
        wait, drawn = _STEP_SECONDS, True
    if drawn:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
