"""A bar on standard error while a command waits: in a terminal, and only after two seconds."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

_AFTER_SECONDS = 2.0
_STEP_SECONDS = 0.2
_WIDTH = 24


@contextmanager
def waiting_bar(what: str, seconds: float, after_seconds: float = _AFTER_SECONDS) -> Iterator[None]:
    """While the block runs, shows how much of at most ``seconds`` is over."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    drawing = threading.Thread(target=_draw, args=(what, seconds, after_seconds, over), daemon=True)
    drawing.start()
    try:
        yield
    finally:
        over.set()
        drawing.join()


def _draw(what: str, seconds: float, after_seconds: float, over: threading.Event) -> None:
    began, drawn = monotonic(), False
    wait = after_seconds
    while not over.wait(wait):
        passed = monotonic() - began
        bar = ("#" * int(min(passed / seconds, 1) * _WIDTH)).ljust(_WIDTH, ".")
        sys.stderr.write(f"\r{what}  [{bar}] {passed:.0f} s")
        sys.stderr.flush()
        wait, drawn = _STEP_SECONDS, True
    if drawn:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
